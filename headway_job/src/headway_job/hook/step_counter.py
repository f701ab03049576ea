"""Counts the optimizer steps of this process.

The steps of one optimizer are counted. A program may have several (a GAN has two, some programs have one for each parameter), which
take turns within what its author calls a step. The steps of any one of them are then proportional to the work done; their sum is
not. The first optimizer that steps is counted, until another replaces it (a second phase of training, the next trial of a sweep, a
new optimizer in each epoch). Then that one is counted, and the total continues. See optimizer_turns for how the two are told apart.

DeepSpeed's ZeRO steps one optimizer several times in each iteration, each time with other parameters in it: for every group, or
every part of a group. For this reason an optimizer together with its first parameter is counted. Its other parts take turns with
it as other optimizers do.

Gradient accumulation needs no special case, since optimizer steps are counted. Steps that GradScaler skips are no calls.
(Optimizers with `fused=True` skip inside their kernel. To see that, one would have to wait for the device, so those are counted.)
"""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable, List, Optional, Set, Tuple

from .optimizer_turns import NO_OPTIMIZER, OptimizerKey, OptimizerTurns, optimizer_key

_MAX_OPTIMIZERS = 4096
_MAX_TENSORS = 100_000

TensorFacts = Tuple[Tuple[int, ...], str, int, int]
"""Shape, type, number of elements, bytes of an element."""


class StepCounter:
    """Steps and parameters, written by the training thread and read by others.

    Invariant: it holds no optimizer and no tensor, only their id() and weak references to optimizers, so that none of them lives
    longer because of it. (torch refuses to swap tensors that have weak references.)
    """

    __slots__ = (
        "batch_size",
        "closed",
        "described",
        "device",
        "first_ns",
        "first_step_callback",
        "last_step",
        "loader_batch_size",
        "optimizer_ids",
        "optimizers",
        "parameters",
        "step_callback",
        "tensor_ids",
        "turns",
    )

    def __init__(self) -> None:
        self.turns = OptimizerTurns()
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
        self.parameters: List[TensorFacts] = []
        """Bound: `_MAX_TENSORS`."""
        self.optimizers = 0
        self.optimizer_ids: Set[int] = set()
        """id() of each optimizer that is included in `optimizers`. Bound: `_MAX_OPTIMIZERS`."""
        self.described: Set[OptimizerKey] = set()
        """The same with each first parameter that they had. Bound: `_MAX_OPTIMIZERS`."""
        self.device = ""
        self.tensor_ids: Set[int] = set()
        """id() of each tensor in `parameters`. Bound: `_MAX_TENSORS`."""
        self.loader_batch_size = 0
        """Batch size of the DataLoader that was iterated last; 0 = not known."""
        self.batch_size = 0
        """Value of `loader_batch_size` at the first step of the counted optimizer."""

    @property
    def counted_key(self) -> OptimizerKey:
        """The optimizer whose steps are counted; NO_OPTIMIZER before the first step."""
        return self.turns.counted_key

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
        key, reference = self.turns.counted_key, self.turns.counted_reference
        steps = self.last_step[0]
        grown = self.turns.record(optimizer, steps)
        if grown:
            self.last_step = (steps + grown, time.monotonic_ns())
        if key == NO_OPTIMIZER:
            self._begin(optimizer)
        elif key != self.turns.counted_key or reference is not self.turns.counted_reference:
            self._describe_again()
        elif len(self.described) < _MAX_OPTIMIZERS and optimizer_key(optimizer) not in self.described:
            self._describe(optimizer)
        if grown and self.turns.counted_reference() is optimizer and self.step_callback is not None:
            self.step_callback()

    def _begin(self, optimizer: Any) -> None:
        self.first_ns = self.last_step[1]
        self.batch_size = self.loader_batch_size
        self._describe(optimizer)
        if self.first_step_callback is not None:
            self.first_step_callback()

    def _describe_again(self) -> None:
        """Describe the optimizers anew, as another one is counted now. If they train what was trained before, that is kept."""
        optimizers = self.turns.optimizers()
        self.batch_size = self.loader_batch_size
        self.described.clear()
        self.optimizer_ids.clear()
        if _tensor_ids(optimizers) != self.tensor_ids:
            self.tensor_ids.clear()
            self.parameters = []
        for optimizer in optimizers:
            self._describe(optimizer)

    def _describe(self, optimizer: Any) -> None:
        self.described.add(optimizer_key(optimizer))
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


def _tensor_ids(optimizers: Iterable[Any]) -> Set[int]:
    return {id(tensor) for optimizer in optimizers for group in optimizer.param_groups for tensor in group["params"]}


def step_hook(counter: StepCounter) -> Callable[..., None]:
    """Return the function that torch calls after each step of each optimizer."""
    clock = time.monotonic_ns
    turns = counter.turns

    def after_step(optimizer: Any, _args: Any = None, _kwargs: Any = None) -> None:
        try:
            counted = (
                turns.counted_reference() is optimizer
                and id(optimizer.param_groups[0]["params"][0]) == turns.counted_key[1]  # as optimizer_key, but faster
            )
        except Exception:
            counted = False
        if counted:
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
