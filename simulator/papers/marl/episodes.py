"""The jobs of episodes, and the figures of an episode that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.envs.options import TraceSource
from simulator.errors import SettingError
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.state.data_center import DataCenter
from simulator.papers.marl.state.jobs import Jobs, jobs_of
from simulator.papers.marl.world import World
from simulator.traces.generators.marl import Marl
from simulator.traces.trace import Trace

RESET_OPTIONS = ("trace", "trace_seed")
_NAN = float("nan")


class JobSource:
    """Draws the jobs of episodes. Invariant: equal random generators give equal jobs."""

    def __init__(self, options: MarlOptions, center: DataCenter) -> None:
        self._options = options
        self._schedulers = center.schedulers
        traces = options.traces if options.traces is not None else workload(options, center)
        self._source = TraceSource(traces, center.cluster)

    def draw(self, rng: np.random.Generator, asked: Mapping[str, Any]) -> Jobs:
        """Return the jobs of the next episode; `asked` may have `trace` (a Trace, or the number of one) or `trace_seed`.

        Raises SettingError.
        """
        return jobs_of(self._trace(rng, asked), self._options, self._schedulers)

    def _trace(self, rng: np.random.Generator, asked: Mapping[str, Any]) -> Trace:
        for name in asked:
            if name not in RESET_OPTIONS:
                raise SettingError(f"reset has no option {name!r}; give {' or '.join(RESET_OPTIONS)}")
        if isinstance(trace := asked.get("trace"), Trace):
            return trace
        for name, find in (("trace", self._source.at), ("trace_seed", self._source.of_seed)):
            if name in asked:
                if not isinstance(asked[name], int | np.integer):
                    raise SettingError(f"{name} is {asked[name]!r}; give a whole number")
                return find(int(asked[name]))
        return self._source.draw(rng)


def workload(options: MarlOptions, center: DataCenter) -> Marl:
    """Return the paper's workload for that data center: jobs in proportion to its servers.

    Equal seeds give equal jobs with one scheduler and with one for each partition.
    """
    each = options.jobs_per_interval * center.topology.num_nodes / 100
    return Marl(
        jobs=max(1, round(each * options.intervals)),
        arrivals=options.arrivals,
        mean_gap_s=options.interval_s / each,
        cluster_gpus=int(center.group_gpus.sum()),
        schedulers=center.partitions,
    )


def outcome(world: World) -> dict[str, float]:
    """Return the figures of an episode; those of JCTs are NaN if a job is not done. JCT counts from the submission."""
    jobs, finish_s = world.jobs, world.finish_s
    done = np.isfinite(finish_s)
    whole = bool(done.all())
    jct_s = finish_s - jobs.submit_s
    gpu_s = float(world.center.group_gpus.sum()) * world.now * world.options.interval_s
    return {
        "jobs": len(jobs),
        "finished": int(done.sum()),
        "avg_jct_s": float(jct_s.mean()) if whole else _NAN,
        "p90_jct_s": float(np.percentile(jct_s, 90)) if whole else _NAN,
        "avg_jct_intervals": float(jct_s.mean() / world.options.interval_s) if whole else _NAN,
        "mean_slowdown": float((jct_s / (jobs.steps * jobs.compute_s)).mean()) if whole else _NAN,
        "makespan_s": float(finish_s.max() - jobs.submit_s.min()) if whole else _NAN,
        "utilization": world.busy_s / gpu_s if gpu_s else _NAN,
        "put_off": world.put_off,
        "forwarded": world.forwarded,
    }
