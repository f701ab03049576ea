"""Ideal speed of a job without neighbours, from the store, and the measured errors of such estimates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from controller.profiles.alone_speeds import up_to_change
from controller.profiles.reader import ProfileReader
from controller.profiles.sensitivity import (
    Ideal,
    Priors,
    StepProfile,
    best_ideal,
    from_jobs,
    from_profiles,
    from_windows,
    predict_step_s,
    relative_spread,
    ring_bytes,
)
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import RunShape, Trained

_RECENT_WINDOWS = 2000
"""Maximum number of windows, the newest, for an ideal: most of a day at 30 s each."""
_OWN_WINDOWS = 40
"""Maximum number of a job's own windows for its ideal, the newest: 20 minutes at 30 s each, however long ago these were."""
_HALF_CONFIDENCE_S = 2 * 86400.0
"""Age at which a job's own speed alone has half of its confidence: its steps may take another time by now."""
_AGED_S = 3600.0
"""Age from which on a job's own speed alone is no longer preferred to a source of more confidence."""
_RECENT_PROFILES = 50
_RECENT_BUSY = 10_000
"""Maximum number of profiles, the newest, of which computing times are compared: 100 runs that send as many as are kept of a run on
one node. A job whose profiles are older counts as one without any."""
_SAME_BUSY = 1.2
"""Largest ratio between kernel times that count as equal: heat and power change the clocks of one GPU model."""
_FEW = 3
"""Minimum number of runs, kinds of jobs or predictions from which a spread is computed."""


def ideal_of(
    store: ProfileReader,
    job_id: int,
    trained: Trained,
    shape: RunShape,
    nodes: Collection[str],
    priors: Priors,
    at_s: float | None = None,
) -> Ideal | None:
    """Return the ideal of a job on these nodes: from its own windows without neighbours, those of similar jobs, or profiles.

    From its own windows of long ago only where the other sources have no more confidence. `at_s`: time of the window that it is
    compared with; None: the age of its own windows does not count.
    A job of an unknown model is compared only with itself, because a script can train anything. So is a job whose computing time
    per step differs from the others', for example with another batch size. Nothing is predicted for a job on a single node.
    """
    windows = store.own_alone(job_id, trained, shape, _OWN_WINDOWS)
    own = _own_ideal(windows, priors, at_s)
    aged = at_s is not None and bool(windows) and at_s - windows[0][0] > _AGED_S
    if not trained.signature or (own is not None and not aged):
        return own
    other = _ideal_of_others(store, job_id, trained, shape, nodes, priors)
    if own is None or other is None:
        return own or other
    return max(own, other, key=lambda ideal: ideal.confidence)


def _ideal_of_others(
    store: ProfileReader, job_id: int, trained: Trained, shape: RunShape, nodes: Collection[str], priors: Priors
) -> Ideal | None:
    """Return the ideal from windows of similar jobs, or else from their profiles and its own."""
    alone = {job: found for job, found in store.alone(trained, shape, _RECENT_WINDOWS).items() if job != job_id}
    busy = store.busy(job_id, trained, shape, _RECENT_BUSY)
    alike = from_jobs([median(alone[other]) for other in _alike(job_id, alone, busy)], priors)
    if alike is not None:
        return alike
    if shape.nodes < 2:
        return None  # on one node jobs share the host, and a profile does not show the speed of a free host
    rows = store.profiles_like(trained, shape, _RECENT_PROFILES)
    others = _alike(job_id, {row.run.job_id for row in rows}, busy)
    profiles = [step_profile(row) for row in rows if row.run.job_id in others]
    return best_ideal(from_profiles(profiles, shape.nodes, store.link_bytes_per_s(nodes), priors))


def _own_ideal(windows: Sequence[tuple[float, float]], priors: Priors, at_s: float | None) -> Ideal | None:
    """Return the ideal ALONE from times and speeds, newest first; its confidence falls with the age of the newest one."""
    ideal = from_windows(up_to_change([steps_per_s for _, steps_per_s in windows], priors.window_spread), priors)
    if ideal is None or at_s is None:
        return ideal
    age_s = max(at_s - windows[0][0], 0.0)
    return replace(ideal, confidence=ideal.confidence * 0.5 ** (age_s / _HALF_CONFIDENCE_S))


def _alike(job_id: int, others: Collection[int], busy: Mapping[int, float]) -> set[int]:
    """Return the jobs of one kind with about the same computing time per step as this job; all when the times are not known.

    When the job's own time is not known, the answer is all of them if they are alike, else none.
    """
    own_s = busy.get(job_id)
    if own_s is not None:
        return {other for other in others if _is_about(own_s, busy.get(other, own_s))}
    known = [busy[other] for other in others if other in busy]
    return set(others) if not known or _is_about(min(known), max(known)) else set()


def _is_about(one_s: float, other_s: float) -> bool:
    return max(one_s, other_s) <= _SAME_BUSY * min(one_s, other_s)


def step_profile(row: ProfileRow) -> StepProfile:
    """Return the values on which predictions are based.

    On several nodes, communication is that between nodes, where the hook could tell it: what a group sends within its node loads no
    link, and the time that it takes depends on the network as little as that of computing. On one node all of it counts: it is not
    known which groups would span nodes if the job ran on several.
    """
    ranks_per_node = row.shape.gpus / row.shape.nodes if row.shape is not None else 1.0
    if row.link_kinds is None or (row.shape is not None and row.shape.nodes < 2):
        return StepProfile(
            row.step_s, row.compute_s, row.exposed_s, row.hidden_s, ring_bytes(row.kinds, ranks_per_node)
        )
    exposed_s, hidden_s = row.local_exposed_s or 0.0, row.local_hidden_s or 0.0
    return StepProfile(
        step_s=row.step_s,
        compute_s=row.compute_s + exposed_s,
        exposed_s=row.exposed_s - exposed_s,
        hidden_s=row.hidden_s - hidden_s,
        ring_bytes=ring_bytes(row.link_kinds, ranks_per_node),
    )


def measured_priors(store: ProfileReader, since_s: float) -> Priors:
    """Return the measured errors of windows, jobs and predictions since then; defaults when there are too few."""
    windows: dict[tuple[Trained, RunShape, int], list[float]] = defaultdict(list)
    places: dict[tuple[Trained, RunShape], tuple[str, ...]] = {}
    for item in store.throughputs(since_s):
        if item.alone:
            windows[item.trained, item.shape, item.run.job_id].append(item.steps_per_s)
            places[item.trained, item.shape] = item.nodes
    jobs: dict[tuple[Trained, RunShape], list[float]] = defaultdict(list)
    for (trained, shape, _), rates in windows.items():
        jobs[trained, shape].append(median(rates))
    misses = [
        miss
        for (trained, shape), medians in jobs.items()
        if (miss := _miss(store, trained, shape, places[trained, shape], median(medians))) is not None
    ]
    usual = Priors()
    return Priors(
        window_spread=_typical(map(relative_spread, windows.values()), usual.window_spread),
        job_spread=_typical(map(relative_spread, jobs.values()), usual.job_spread),
        prediction_error=_typical(misses, usual.prediction_error),
    )


def _miss(
    store: ProfileReader, trained: Trained, shape: RunShape, nodes: Sequence[str], alone_steps_per_s: float
) -> float | None:
    """Return the relative error of the prediction for a kind of job; None when there is no prediction."""
    free = store.link_bytes_per_s(nodes)
    steps_s = [
        step_s
        for row in store.profiles_like(trained, shape, _RECENT_PROFILES)
        if (step_s := predict_step_s(step_profile(row), shape.nodes, free)) is not None
    ]
    return abs(1 / median(steps_s) / alone_steps_per_s - 1) if steps_s else None


def _typical(values: Iterable[float | None], usual: float) -> float:
    known = [value for value in values if value is not None]
    return median(known) if len(known) >= _FEW else usual
