"""Counts the optimizer steps of this process.

The steps of one optimizer are counted. A program may have several (a GAN has two, some programs have one for each parameter), which
take turns within what its author calls a step. The steps of any one of them are then proportional to the work done; their sum is
not. The first optimizer that steps is counted, until another has made _SWITCH_AFTER_STEPS steps in a row (a second phase of
training, or the next trial of a sweep). Then that one is counted, and the total continues.

DeepSpeed's ZeRO steps one optimizer several times in each iteration, each time with other parameters in it: for every group, or
every part of a group. For this reason an optimizer together with its first parameter is counted. Its other parts take turns with
it as other optimizers do.

Gradient accumulation needs no special case, since optimizer steps are counted. Steps that GradScaler skips are no calls.
(Optimizers with `fused=True` skip inside their kernel. To see that, one would have to wait for the device, so those are counted.)
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Callable, List, Optional, Set, Tuple

_SWITCH_AFTER_STEPS = 256
_MAX_OPTIMIZERS = 4096
_MAX_TENSORS = 100_000

OptimizerKey = Tuple[int, int]
"""id() of an optimizer, and id() of the first parameter that it has when it steps (0 = it has none)."""
NO_OPTIMIZER: OptimizerKey = (0, 0)

TensorFacts = Tuple[Tuple[int, ...], str, int, int]
"""Shape, type, number of elements, bytes of an element."""


class StepCounter:
    """Steps and parameters, written by the training thread and read by others.

    Invariant: it refers to no optimizer and no tensor, only to their id(), so that none of them lives longer because of it.
    """

    __slots__ = (
        "batch_size",
        "closed",
        "counted_key",
        "device",
        "first_ns",
        "first_step_callback",
        "last_step",
        "loader_batch_size",
        "optimizer_ids",
        "optimizers",
        "other_optimizers",
        "parameters",
        "step_callback",
        "tensor_ids",
    )

    def __init__(self) -> None:
        self.counted_key = NO_OPTIMIZER
        """The optimizer whose steps are counted; NO_OPTIMIZER before the first step."""
        self.last_step = (0, 0)
        """Number of steps, and the end of the last one (CLOCK_MONOTONIC, ns). One object: a reader sees both of one step."""
        self.first_ns = 0
        """End of the first step (CLOCK_MONOTONIC, ns)."""
        self.step_callback: Optional[Callable[[], None]] = None
        """Called by the training thread after each counted step. It must not raise."""
        self.first_step_callback: Optional[Callable[[], None]] = None
        """Called by the training thread in the first step."""
        self.closed = False
        """True in a forked child, and at exit: nothing is counted any more."""
        self.other_optimizers: OrderedDict[OptimizerKey, Tuple[int, int]] = OrderedDict()
        """For each optimizer that is not counted: the number of counted steps at its last step, and its steps since then. Bound:
        the newest `_MAX_OPTIMIZERS`."""
        self.parameters: List[TensorFacts] = []
        """Bound: `_MAX_TENSORS`."""
        self.optimizers = 0
        self.optimizer_ids: Set[int] = set()
        """id() of each optimizer that is included in `optimizers`. Bound: `_MAX_OPTIMIZERS`."""
        self.device = ""
        self.tensor_ids: Set[int] = set()
        """id() of each tensor in `parameters`. Bound: `_MAX_TENSORS`."""
        self.loader_batch_size = 0
        """Batch size of the DataLoader that was iterated last; 0 = not known."""
        self.batch_size = 0
        """Value of `loader_batch_size` at the first step of the counted optimizer."""

    def set_step_callback(self, callback: Optional[Callable[[], None]]) -> None:
        """Set the function that is called after each counted step; None = none."""
        self.step_callback = callback

    def set_first_step_callback(self, callback: Callable[[], None]) -> None:
        """Set the function that is called in the first step."""
        self.first_step_callback = callback

    def note_loader(self, batch_size: int) -> None:
        """Note the batch size of the DataLoader that is iterated now; 0 = not known."""
        self.loader_batch_size = batch_size

    def close(self) -> None:
        """Count no more, and call nothing."""
        self.closed = True
        self.step_callback = None

    def record_other(self, optimizer: Any) -> None:
        """Record a step of an optimizer that is not counted, or not yet."""
        if self.closed:
            return
        key = optimizer_key(optimizer)
        steps = self.last_step[0]
        if self.counted_key == NO_OPTIMIZER:
            self.first_ns = time.monotonic_ns()
            self.last_step = (1, self.first_ns)
            self.counted_key = key
            self.batch_size = self.loader_batch_size
            self._describe(optimizer)
            if self.first_step_callback is not None:
                self.first_step_callback()
        elif key not in self.other_optimizers:
            if len(self.other_optimizers) >= _MAX_OPTIMIZERS:
                self.other_optimizers.popitem(last=False)
            self.other_optimizers[key] = (steps, 1)
            if len(self.optimizer_ids) < _MAX_OPTIMIZERS:
                self._describe(optimizer)
        else:
            begun, row = self.other_optimizers[key]
            row = row + 1 if begun == steps else 1
            self.other_optimizers[key] = (steps, row)
            if row >= _SWITCH_AFTER_STEPS:
                self._switch_to(optimizer, row)

    def _switch_to(self, optimizer: Any, row: int) -> None:
        self.counted_key = optimizer_key(optimizer)
        self.last_step = (self.last_step[0] + row, time.monotonic_ns())
        self.other_optimizers.clear()
        self.tensor_ids.clear()
        self.parameters = []
        self.optimizers = 0
        self.optimizer_ids.clear()
        self.batch_size = self.loader_batch_size
        self._describe(optimizer)

    def _describe(self, optimizer: Any) -> None:
        self.optimizer_ids.add(id(optimizer))
        self.optimizers = len(self.optimizer_ids)
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                if id(tensor) in self.tensor_ids or len(self.tensor_ids) >= _MAX_TENSORS:
                    continue
                self.tensor_ids.add(id(tensor))
                shape = tuple(int(size) for size in tensor.shape)
                self.parameters.append((shape, str(tensor.dtype), int(tensor.numel()), int(tensor.element_size())))
                self.device = self.device or str(tensor.device.type)


def optimizer_key(optimizer: Any) -> OptimizerKey:
    """Return the key of an optimizer and the parameters that it steps now. Any object is accepted."""
    try:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                return id(optimizer), id(tensor)
    except Exception:
        pass  # an optimizer that is not torch's may lack any attribute
    return id(optimizer), 0


def step_hook(counter: StepCounter) -> Callable[..., None]:
    """Return the function that torch calls after each step of each optimizer."""
    clock = time.monotonic_ns

    def after_step(optimizer: Any, _args: Any = None, _kwargs: Any = None) -> None:
        try:
            key = id(optimizer), id(optimizer.param_groups[0]["params"][0])  # the same as optimizer_key, but faster
        except Exception:
            key = optimizer_key(optimizer)
        if key == counter.counted_key:
            counter.last_step = (counter.last_step[0] + 1, clock())
            if counter.step_callback is not None:
                counter.step_callback()
            return
        try:
            counter.record_other(optimizer)
        except Exception:
            # An optimizer that is not torch's may lack any attribute.
            pass

    # In a compiled step, dynamo would trace this function, break its graph at the clock, and warn the user.
    after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
    return after_step
