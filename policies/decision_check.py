"""The check of a decision by itself: types, rows, queue and reasons, before any rule about nodes and jobs.

Every program that applies a decision, or reads one from a message, calls it, so that a decision that one of them takes, each takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from policies.api import Decision
from policies.model import BoolColumn, Placement


def decision_problem(decision: object, waiting: BoolColumn, ids: Sequence[str]) -> str:
    """Return the first fault of the decision; "" if it has none. `waiting` and `ids` have one entry for each job.

    The rows of the allocation may still be those of no job.
    """
    if not isinstance(decision, Decision):
        return f"it is of type {type(decision).__name__}; return a Decision"
    return (
        _allocation_problem(decision.allocation, ids)
        or _queue_problem(decision.queue, waiting, ids)
        or _reasons_problem(decision.reasons, ids)
        or _text_problem("guard", decision.guard)
        or _text_problem("outside", decision.outside)
    )


def _allocation_problem(allocation: object, ids: Sequence[str]) -> str:
    if not isinstance(allocation, Mapping):
        return f"allocation: is of type {type(allocation).__name__}; give placements by rows of jobs"
    if odd := _no_integers(allocation):
        return f"allocation: has {odd} as the row of a job; give rows as integers"
    placements = allocation.values()
    if set(map(type, placements)) <= {Placement} and not _no_integers(chain.from_iterable(map(_numbers, placements))):
        suspects = [row for row, each in allocation.items() if _lengths_problem(each)]
    else:
        suspects = list(allocation)
    for row in suspects:
        if problem := _placement_problem(allocation[row]):
            return f"job {ids[row] if 0 <= row < len(ids) else f'of row {row}'}: {problem}"
    return ""


def _placement_problem(placement: object) -> str:
    if not isinstance(placement, Placement):
        return f"its placement is of type {type(placement).__name__}; give a Placement"
    for name in _COLUMNS:
        if odd := _no_integers(getattr(placement, name)):
            return f"{name} of its placement has {odd}; give integers"
    return _lengths_problem(placement)


_COLUMNS = ("nodes", "gpus", "server_nodes", "servers", "gpu_masks")


def _numbers(placement: Placement) -> Iterable[int]:
    if placement.server_nodes or placement.servers or placement.gpu_masks:
        return chain.from_iterable(getattr(placement, name) for name in _COLUMNS)
    return (*placement.nodes, *placement.gpus)


def _lengths_problem(placement: Placement) -> str:
    nodes, servers = len(placement.nodes), len(placement.server_nodes)
    if len(placement.gpus) != nodes:
        return f"{len(placement.gpus)} numbers of GPUs for {nodes} nodes; give one for each"
    if len(placement.servers) != servers:
        return f"{len(placement.servers)} numbers of parameter servers for {servers} nodes; give one for each"
    if len(placement.gpu_masks) not in (0, nodes):
        return f"{len(placement.gpu_masks)} sets of GPUs for {nodes} nodes; give one for each, or none"
    return ""


def _queue_problem(queue: object, waiting: BoolColumn, ids: Sequence[str]) -> str:
    if not isinstance(queue, Sequence | np.ndarray) or isinstance(queue, str | bytes):
        return f"queue: is of type {type(queue).__name__}; give a tuple of rows of waiting jobs"
    if not len(queue):
        return ""
    if odd := _no_integers(queue):
        return f"queue: has {odd}; give rows of waiting jobs as integers"
    if min(queue) < 0 or max(queue) >= len(ids):
        strange = next(row for row in queue if not 0 <= row < len(ids))
        return f"queue: has row {strange}, which is no job: there are {len(ids)} jobs"
    rows = np.array(queue, dtype=np.int64)
    if (times := np.bincount(rows)).max() > 1:
        return f"queue: has job {ids[int(times.argmax())]} twice; name each waiting job once"
    still = ~waiting[rows]
    return f"queue: has job {ids[rows[still][0]]}, which does not wait; name only waiting jobs" if still.any() else ""


def _reasons_problem(reasons: object, ids: Sequence[str]) -> str:
    if not isinstance(reasons, Mapping):
        return f"reasons: is of type {type(reasons).__name__}; give texts by rows of jobs"
    if odd := _no_integers(reasons):
        return f"reasons: has {odd} as the row of a job; give rows as integers"
    texts = list(reasons.values())
    # Nearly always all reasons are plain texts, of which a long queue has thousands: they are checked together.
    plain = set(map(type, texts)) <= {str} and "".join(texts).isascii()
    if plain and (not reasons or (min(reasons) >= 0 and max(reasons) < len(ids))):
        return ""
    for row, text in reasons.items():
        if not 0 <= row < len(ids):
            return f"reasons: has row {row}, which is no job: there are {len(ids)} jobs"
        if problem := _text_problem(f"reasons: that of job {ids[row]}", text):
            return problem
    return ""


def _text_problem(name: str, text: object) -> str:
    if not isinstance(text, str):
        return f"{name} is of type {type(text).__name__}; give a text"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"{name} has characters that UTF-8 cannot express (lone surrogates); leave them out"
    return ""


def _no_integers(values: Iterable[object]) -> str:
    """Return the first of the values that is no integer, and its type; "" if all are integers."""
    values = list(values)
    if set(map(type, values)) <= {int}:
        return ""
    odd = [each for each in values if not isinstance(each, int | np.integer) or isinstance(each, bool)]
    return f"{ascii(odd[0])[:60]} ({type(odd[0]).__name__})" if odd else ""
