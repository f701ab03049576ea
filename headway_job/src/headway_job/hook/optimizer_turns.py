"""Which optimizer of a process is counted, where optimizers take turns or replace each other.

Optimizers take turns if each of them steps again after the others: in a GAN, with one optimizer for each parameter, or where
DeepSpeed steps an optimizer part by part. Then the steps of one of them are counted. An optimizer is replaced if it never steps
again: by a new optimizer in each epoch, by the next fold of a cross-validation, by a second phase of training. Then the steps of
its successor are counted on.

While others step, the two look the same, so the steps of the others wait. They are dropped when the counted optimizer steps again.
They are counted when it is clear that it was replaced: it is freed; or another optimizer has stepped that often; or optimizers were
replaced before, none has come back since, and one steps that has never stepped before.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any, Callable, Tuple

_REPLACED_AFTER_STEPS = 256
_MAX_OPTIMIZERS = 4096

OptimizerKey = Tuple[int, int]
"""id() of an optimizer, and id() of the first parameter that it has when it steps (0 = it has none)."""
NO_OPTIMIZER: OptimizerKey = (0, 0)
Reference = Callable[[], Any]
"""Returns the optimizer; None = it was freed; _UNKNOWN = its class has no weak references."""
_UNKNOWN = object()


class _Waiting:
    """Steps of an optimizer that may yet be counted."""

    __slots__ = ("reference", "steps")

    def __init__(self, reference: Reference, steps: int) -> None:
        self.reference = reference
        self.steps = steps


class OptimizerTurns:
    """Decides which steps are counted.

    Invariant: the steps of the optimizers in `_waiting` were made after the last step of the counted optimizer, and those of each
    of them after the last step of the one before it. So if none of them steps again, the sum of their steps is right.
    """

    __slots__ = (
        "_in_a_row",
        "_known",
        "_part_since",
        "_replaced",
        "_total",
        "_waiting",
        "counted_key",
        "counted_reference",
    )

    def __init__(self) -> None:
        self.counted_key = NO_OPTIMIZER
        """The optimizer whose steps are counted; NO_OPTIMIZER before the first step."""
        self.counted_reference: Reference = _unknown
        self._total = 0
        """Number of counted steps when the first of `_waiting` began."""
        self._part_since = 0
        """Number of counted steps when the counted optimizer last stepped with other parameters."""
        self._waiting: OrderedDict[OptimizerKey, _Waiting] = OrderedDict()
        """Bound: the newest `_MAX_OPTIMIZERS`."""
        self._in_a_row = 0
        """Sum of the steps in `_waiting` without the first of each optimizer, as there may be hundreds that step once each."""
        self._known: OrderedDict[OptimizerKey, Reference] = OrderedDict()
        """Optimizers that have stepped. Bound: the newest `_MAX_OPTIMIZERS`."""
        self._replaced = False
        """The last optimizer that was silent for long was replaced, and none has come back since."""

    def record(self, optimizer: Any, total: int) -> int:
        """Record a step that may be of another optimizer than the counted one. Return by how much the count `total` grows.

        Steps of the counted one need not be recorded, if `total` includes them.
        """
        key = optimizer_key(optimizer)
        reference = _reference(optimizer)
        if self.counted_key == NO_OPTIMIZER:
            self._know(key, reference)
            return self._count(key, reference, 1)
        if total != self._total:
            self._came_back()
            self._total = total
        grown = self._count_freed()
        if self.counted_reference() is None:
            self._know(key, reference)
            grown += self._count(key, reference, 1)
        elif self._is_counted(key, optimizer) or self._has_other_parameters(key, optimizer, total):
            self._came_back()
            if key != self.counted_key:
                self.counted_key = key
                self._know(key, reference)
            grown += 1
        else:
            grown += self._record_other(key, reference, optimizer)
        self._total = total + grown
        return grown

    def optimizers(self) -> Tuple[Any, ...]:
        """Return the counted optimizer and those that may take turns with it, as far as they exist."""
        references = [self.counted_reference, *(each.reference for each in self._waiting.values())]
        found = (reference() for reference in references)
        return tuple(each for each in found if each is not None and each is not _UNKNOWN)

    def _record_other(self, key: OptimizerKey, reference: Reference, optimizer: Any) -> int:
        grown = 0
        if key in self._waiting:
            self._return_to(key)
        else:
            if self._know(key, reference) and self._replaced:
                while self._waiting:
                    grown += self._count_first()
                return grown + self._count(key, reference, 1)
            self._wait(key, reference)
            if key[0] == self.counted_key[0] and self.counted_reference() is optimizer:
                self._part_since = self._total
        while self._waiting and self._in_a_row >= _REPLACED_AFTER_STEPS:
            self._replaced = True
            grown += self._count_first()
        return grown

    def _is_counted(self, key: OptimizerKey, optimizer: Any) -> bool:
        found = self.counted_reference()
        return key == self.counted_key and (found is optimizer or found is _UNKNOWN)

    def _has_other_parameters(self, key: OptimizerKey, optimizer: Any, total: int) -> bool:
        """Return True if this is the counted optimizer whose first parameter was frozen or exchanged.

        An optimizer that is stepped part by part makes no two steps with one part.
        """
        return key[0] == self.counted_key[0] and self.counted_reference() is optimizer and total - self._part_since >= 2

    def _came_back(self) -> None:
        self._in_a_row = 0
        if self._waiting:
            self._waiting.clear()
            self._replaced = False

    def _return_to(self, key: OptimizerKey) -> None:
        """Count a step of an optimizer that waits; those that waited after it take turns with it."""
        while next(reversed(self._waiting)) != key:
            self._in_a_row -= self._waiting.popitem()[1].steps - 1
            self._replaced = False
        self._waiting[key].steps += 1
        self._in_a_row += 1

    def _wait(self, key: OptimizerKey, reference: Reference) -> None:
        waiting = _Waiting(reference, 1)
        if self._waiting:
            last = next(reversed(self._waiting))
            if self._waiting[last].reference() is None:
                waiting.steps += self._waiting.pop(last).steps
                self._in_a_row += 1
        if len(self._waiting) >= _MAX_OPTIMIZERS:
            self._in_a_row -= self._waiting.popitem(last=False)[1].steps - 1
        self._waiting[key] = waiting

    def _know(self, key: OptimizerKey, reference: Reference) -> bool:
        """Return True if this optimizer has not stepped before."""
        known = self._known.pop(key, None)
        if len(self._known) >= _MAX_OPTIMIZERS:
            self._known.popitem(last=False)
        self._known[key] = reference
        new = known is None or known() is not reference()
        if not new:
            self._replaced = False
        return new

    def _count_freed(self) -> int:
        """Have the waiting optimizers take over from those that do not exist any more."""
        grown = 0
        while self._waiting and self.counted_reference() is None:
            grown += self._count_first()
        return grown

    def _count_first(self) -> int:
        key, first = self._waiting.popitem(last=False)
        self._in_a_row = self._in_a_row - first.steps + 1 if self._waiting else 0
        return self._count(key, first.reference, first.steps)

    def _count(self, key: OptimizerKey, reference: Reference, steps: int) -> int:
        self.counted_key, self.counted_reference = key, reference
        self._total += steps
        self._part_since = self._total
        return steps


def optimizer_key(optimizer: Any) -> OptimizerKey:
    """Return the key of an optimizer and the parameters that it steps now. Any object is accepted."""
    try:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                return id(optimizer), id(tensor)
    except Exception:
        pass  # an optimizer that is not torch's may lack any attribute
    return id(optimizer), 0


def _reference(optimizer: Any) -> Reference:
    try:
        return weakref.ref(optimizer)
    except TypeError:
        return _unknown


def _unknown() -> Any:
    return _UNKNOWN
