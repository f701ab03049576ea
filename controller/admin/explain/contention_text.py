"""Text for users about the speed of a job beside others."""

from __future__ import annotations

from collections.abc import Sequence

from controller.admin.explain.cycle_view import CycleView
from controller.base.text import count, listed, three_digits
from controller.profiles.current import Contention
from controller.profiles.sensitivity import IdealSource, Sensitivity
from controller.slurm.model.job import SlurmJob

_UNDISTURBED = 1.05
"""Slowdown below which a job counts as undisturbed, because windows of one job differ by as much."""


def pace_text(view: CycleView, job: SlurmJob) -> str:
    """Return sentences on its speed and its idle GPUs, which begin with a space; empty when nothing was measured."""
    found = view.contention(job)
    return "" if found is None else _speed_text(view, found) + _idle_text(found)


def _idle_text(found: Contention) -> str:
    """Return a hint about GPUs that the job holds and does not use; empty when there are none."""
    idle, gpus = found.window.idle_gpus, found.window.shape.gpus
    if not idle:
        return ""
    return (
        f" {idle} of its {count(gpus, 'GPU')} had no process of it in the newest window: ask for as many GPUs as the script uses, "
        "and check that every rank has one of its own."
    )


def _speed_text(view: CycleView, found: Contention) -> str:
    others = _others(view.beside(found))
    speed = f"It trains at {three_digits(found.window.steps_per_s)} steps/s"
    if found.sensitivity is None:
        return f" {speed}{f' beside {others}' if others else ', alone on its links'}; its speed without neighbours is not known."
    slower = found.sensitivity.value
    pace = f"{slower:.2f} times slower than alone" if slower >= _UNDISTURBED else "as fast as alone"
    near = f" beside {others}" if others else ", with no job beside it"
    return f" {speed}, {pace}{near} ({_basis(found.sensitivity)})."


def contention_facts(view: CycleView, job: SlurmJob) -> dict[str, str]:
    """Return the numbers behind that sentence."""
    found = view.contention(job)
    if found is None:
        return {}
    facts = {
        "idle_gpus": str(found.window.idle_gpus),
        "throughput_steps_per_s": f"{found.window.steps_per_s:.6g}",
        "throughput_window_start_s": f"{found.window.start_s:.12g}",
    }
    if beside := view.beside(found):
        facts["beside"] = ",".join(beside)
    if found.sensitivity is not None:
        facts |= {
            "contention_sensitivity": f"{found.value:.4g}",
            "contention_confidence": f"{found.confidence:.3f}",
            "contention_source": found.source,
            "throughput_alone_steps_per_s": f"{found.sensitivity.ideal.steps_per_s:.6g}",
        }
    return facts


def _others(ids: Sequence[str]) -> str:
    if not ids:
        return ""
    return f"{'job' if len(ids) == 1 else 'jobs'} {listed(ids)}"


def _basis(known: Sensitivity) -> str:
    """Return how the speed without neighbours is known."""
    ideal = known.ideal
    alone = f"{three_digits(ideal.steps_per_s)} steps/s"
    match ideal.source:
        case IdealSource.ALONE:
            basis = f"{alone} in {count(ideal.samples, 'window')} alone"
        case IdealSource.STORE:
            basis = f"{alone} by {count(ideal.samples, 'job')} of its kind alone"
        case _:
            basis = f"{alone} as predicted from {count(ideal.samples, 'profile')}"
    return f"{basis}; confidence {ideal.confidence:.0%}"
