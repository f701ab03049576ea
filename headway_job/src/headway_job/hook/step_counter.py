"""Counts the optimizer steps of this process.

One optimizer counts. A program may have several (a GAN has two, some have one for every parameter), which take turns inside
what its author calls a step; the steps of any one of them are then proportional to the work done, their sum is not. The
first one that steps counts, until another has made _SUCCESSION steps without one of the first in between (a second phase of
training, the next trial of a sweep): then that one counts, and the total goes on.

DeepSpeed's ZeRO steps one optimizer several times an iteration, each time with other parameters in it: for every group of them, or
every part of a group. So what counts is an optimizer together with its first parameter; its other parts take turns with that one
as other optimizers do.

Gradient accumulation needs nothing, as optimizer steps are counted; nor do steps that GradScaler skips, which are no calls.
(Optimizers with `fused=True` skip inside their kernel: to see that would force a wait for the device, so those count.)
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

_SUCCESSION = 256
_MOST_OPTIMIZERS = 4096
_MOST_TENSORS = 100_000

Key = Tuple[int, int]
"""id() of an optimizer and of the first parameter that it has when it steps; 0: it has none."""
NOBODY: Key = (0, 0)

Tensor = Tuple[Tuple[int, ...], str, int, int]
"""Shape, type, number of elements, bytes of an element."""


class Tally:
    """What the training thread writes and others read.

    Invariant: no optimizer and no tensor is referred to, so that none lives longer than it would; they are their id().
    """

    __slots__ = (
        "batch_size",
        "began",
        "closed",
        "device",
        "errand",
        "first_ns",
        "loading",
        "mark",
        "met",
        "optimizers",
        "owner",
        "parameters",
        "rivals",
        "seen",
    )

    def __init__(self) -> None:
        self.owner = NOBODY
        """What counts; NOBODY: nothing has stepped yet."""
        self.mark = (0, 0)
        """Steps so far and the end of the last one, CLOCK_MONOTONIC ns: one object, so that a reader sees both of one step."""
        self.first_ns = 0
        """End of the first step."""
        self.errand: Optional[Callable[[], None]] = None
        """Called by the training thread after a step that counts; must not raise."""
        self.began: Optional[Callable[[], None]] = None
        """Called by the training thread in the first step of all."""
        self.closed = False
        """In a forked child, or at exit."""
        self.rivals: Dict[Key, Tuple[int, int]] = {}
        """Other optimizers: the steps that counted when they began their row, and the length of that row."""
        self.parameters: List[Tensor] = []
        self.optimizers = 0
        self.met: Set[int] = set()
        """The optimizers that were counted in `optimizers`, by id()."""
        self.device = ""
        self.seen: Set[int] = set()
        self.loading = 0
        """Batch size of the DataLoader that was asked for batches last; 0: not known."""
        self.batch_size = 0
        """What that was when the optimizer that counts first stepped."""

    def meet(self, optimizer: Any) -> None:
        """A step of an optimizer that does not count, or not yet."""
        if self.closed:
            return
        key = key_of(optimizer)
        steps = self.mark[0]
        if self.owner == NOBODY:
            self.first_ns = time.monotonic_ns()
            self.mark = (1, self.first_ns)
            self.owner = key
            self.batch_size = self.loading
            self._describe(optimizer)
            if self.began is not None:
                self.began()
        elif key not in self.rivals:
            if len(self.rivals) < _MOST_OPTIMIZERS:
                self.rivals[key] = (steps, 1)
                self._describe(optimizer)
        else:
            begun, row = self.rivals[key]
            row = row + 1 if begun == steps else 1
            self.rivals[key] = (steps, row)
            if row >= _SUCCESSION:
                self._succeed(optimizer, row)

    def _succeed(self, optimizer: Any, row: int) -> None:
        self.owner = key_of(optimizer)
        self.mark = (self.mark[0] + row, time.monotonic_ns())
        self.rivals.clear()
        self.seen.clear()
        self.parameters = []
        self.optimizers = 0
        self.met.clear()
        self.batch_size = self.loading
        self._describe(optimizer)

    def _describe(self, optimizer: Any) -> None:
        self.met.add(id(optimizer))
        self.optimizers = len(self.met)
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                if id(tensor) in self.seen or len(self.seen) >= _MOST_TENSORS:
                    continue
                self.seen.add(id(tensor))
                shape = tuple(int(size) for size in tensor.shape)
                self.parameters.append((shape, str(tensor.dtype), int(tensor.numel()), int(tensor.element_size())))
                self.device = self.device or str(tensor.device.type)


def key_of(optimizer: Any) -> Key:
    """What of an optimizer steps now. Takes any object for one."""
    try:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                return id(optimizer), id(tensor)
    except Exception:
        pass  # one that is none of torch's may lack anything
    return id(optimizer), 0


def step_hook(tally: Tally) -> Callable[..., None]:
    """What torch calls after every step of every optimizer."""
    clock = time.monotonic_ns

    def after_step(optimizer: Any, _args: Any = None, _kwargs: Any = None) -> None:
        try:
            key = id(optimizer), id(optimizer.param_groups[0]["params"][0])  # as key_of, which takes longer
        except Exception:
            key = key_of(optimizer)
        if key == tally.owner:
            tally.mark = (tally.mark[0] + 1, clock())
            if tally.errand is not None:
                tally.errand()
            return
        try:
            tally.meet(optimizer)
        except Exception:
            # An optimizer that is none of torch's may lack anything that is asked of it.
            pass

    # Where a step is compiled, dynamo would trace this function, break its graph at the clock, and warn the user of it.
    after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
    return after_step
