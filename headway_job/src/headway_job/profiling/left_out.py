"""Calls of the program that a recording leaves out, as what they begin may end after it.

torch's profiler writes the end of an event into the recording in which it began, if any profiler runs then; and it frees the memory
of a recording when it stops. So nothing may be recorded that outlives the recording:
- a send or receive of gloo, which ends where the program waits for it, at any later time. Those of dist.send and dist.recv are
  recorded: they are waited for before the training thread can reach the end of its step, where recordings stop.
- an annotation (torch.profiler.record_function), which the program may leave in a later step. Those of the DataLoader are recorded,
  as no step ends within them.
Collectives end by themselves (see gloo_trace). Those of which a recording has only a part are noted on their way (see whole_sizes);
so are their process groups (see group_notes).
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import CodeType, FrameType
from typing import Any, Callable, FrozenSet, List, Optional, Tuple

from . import group_notes, whole_sizes
from .not_compiled import Method, not_compiled

WAIT_FOR_DATA = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
"""Beginning of the name of the annotation in which a program waits for a worker of its DataLoader."""
_P2P = ("send", "recv", "recv_anysource")
_BLOCKING = ("send", "recv")
_MAX_FRAMES = 8
"""Frames from a process group's method to dist.send or dist.recv, with that of Dynamo: fewer in each version of torch."""


class LeftOut:
    """Replaces methods of torch's classes during a recording: they switch recording off for the calling thread while they run.

    Invariant: recording is switched on again only where it was on before, that is, not after `pause`.
    """

    def __init__(
        self,
        set_recording: Callable[[bool], Any],
        sizes: whole_sizes.WholeSizes,
        groups: group_notes.GroupNotes,
    ) -> None:
        """`set_recording` switches recording on or off for the calling thread.

        `sizes` notes calls that are recorded in part, and `groups` the process groups of calls.
        """
        self._set_recording = set_recording
        self._watchers: Tuple[Tuple[Any, Callable[[str], Callable[..., bool]]], ...] = (
            (whole_sizes.METHODS, sizes.watch),
            (group_notes.METHODS, groups.watch),
        )
        """The methods that each watches, and the function that returns what takes their arguments."""
        self._blocking = _codes_of_blocking_calls()
        self._recording = False
        self._replaced: List[Tuple[type, str, Method, Method]] = []
        """Class, name, original and replacement. Bound: the methods named here."""

    def begin(self) -> None:
        """Replace the methods. Older versions of torch may lack some of them."""
        self._recording = True
        distributed = sys.modules.get("torch._C._distributed_c10d")
        for owner in (getattr(distributed, name, None) for name in ("ProcessGroup", "Backend")):
            for name in _P2P:
                self._replace(owner, name, self._may_send_later)
            for name in {**whole_sizes.METHODS, **group_notes.METHODS}:
                self._replace(owner, name, _all([watch(name) for methods, watch in self._watchers if name in methods]))
        self._replace(sys.modules["torch.autograd.profiler"].record_function, "__enter__", _is_left_later)

    def pause(self) -> None:
        """Nothing is recorded any more. Called in the thread of the recording, before its recording is switched off."""
        self._recording = False

    def end(self) -> None:
        """Put the methods back. One that something else has replaced meanwhile stays, and only calls the original from now on."""
        self._recording = False
        while self._replaced:
            owner, name, original, replacement = self._replaced.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, outlives: Callable[..., bool]) -> None:
        original = vars(owner).get(name) if isinstance(owner, type) else None
        if original is None:
            return
        replacement = self._unrecorded(original, outlives)
        # pybind11 finds by this name that a method calls the one that it overrides: without it, subclasses in Python would recurse.
        replacement.__code__ = replacement.__code__.replace(co_name=name)
        # Dynamo does not compile the original either. In a program that is compiled, it looks at each function of Python that runs
        # after a graph break; it would compile this one for each kind of arguments, warn of too many, and fail where none further
        # is permitted. A program that compiles has imported Dynamo by now: optimizers of torch import it in the first step.
        replacement = not_compiled(replacement)
        self._replaced.append((owner, name, original, replacement))
        setattr(owner, name, replacement)

    def _unrecorded(self, call: Method, outlives: Callable[..., bool]) -> Any:
        @functools.wraps(call)
        def calling(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._recording or not outlives(self_, *args, **kwargs):
                return call(self_, *args, **kwargs)
            try:
                self._set_recording(False)
                return call(self_, *args, **kwargs)
            finally:
                self._set_recording(True)

        return calling

    def _may_send_later(self, _group: Any, *args: Any, **kwargs: Any) -> bool:
        tensors = args[0] if args else kwargs.get("tensors", ())
        if tensors and all(getattr(tensor, "is_cuda", False) for tensor in tensors):
            return False  # of NCCL: its events end with the launch
        frame: Optional[FrameType] = sys._getframe(2)
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            if frame.f_code in self._blocking:
                return False
            frame = frame.f_back
        return True


def _all(notes: List[Callable[..., bool]]) -> Callable[..., bool]:
    """Return a function that calls each of these, which return False, and returns False."""

    def note(*args: Any, **kwargs: Any) -> bool:
        for each in notes:
            each(*args, **kwargs)
        return False

    return note


def _is_left_later(annotation: Any) -> bool:
    return not str(getattr(annotation, "name", "")).startswith(WAIT_FOR_DATA)


def _codes_of_blocking_calls() -> FrozenSet[CodeType]:
    module = sys.modules.get("torch.distributed.distributed_c10d")
    functions = [inspect.unwrap(getattr(module, name)) for name in _BLOCKING if hasattr(module, name)]
    return frozenset(function.__code__ for function in functions if inspect.isfunction(function))
