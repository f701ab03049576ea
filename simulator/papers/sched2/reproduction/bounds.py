"""Lower bounds for every schedule: no policy can have a shorter average JCT or makespan, or a higher effectiveness."""

from __future__ import annotations

from simulator.cluster.cluster import Cluster
from simulator.reproducing.experiment import Contender, Kind, Run, Setting
from simulator.runs.progress import OnProgress
from simulator.traces.trace import NS_PER_S, Trace

BOUND = "lower bound"


def bounds(trace: Trace, cluster: Cluster) -> dict[str, float]:
    """Return the bounds of a trace; times in seconds.

    A job cannot end before its submission plus its ideal time, and the work of all jobs that are submitted after any instant must
    be done after it, on the GPUs that there are.
    """
    submit, ideal = trace.submit_ns / NS_PER_S, trace.duration_ns / NS_PER_S
    work = (ideal * trace.num_gpus)[::-1].cumsum()[::-1] / cluster.num_gpus
    makespan = max((submit + ideal).max(), (submit + work).max()) - submit[0]
    return {"avg_jct_s": float(ideal.mean()), "effectiveness": 1.0, "makespan_s": float(makespan)}


def bound() -> Contender:
    """Return the bounds as a contender."""

    def run(setting: Setting, seed: int, _on_progress: OnProgress | None) -> Run:
        return Run(bounds(setting.trace(seed), setting.cluster))

    return Contender(BOUND, Kind.BOUND, run)
