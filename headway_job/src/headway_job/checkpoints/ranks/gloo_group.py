"""A gloo group of our own, and when it and its operations may be freed.

gloo's threads hold an operation for a moment after it is completed. A thread that frees its tensors needs Python's lock (the GIL),
and a thread that waits for the lock while Python ends is ended in the middle of it: then the process aborts, or its end hangs. So
gloo's threads are never the last to hold a tensor.
"""

from __future__ import annotations

import ctypes
import datetime
from typing import Any, List

import torch

from ..errors import Refused

_MOST_OPERATIONS = 64
"""Operations that are kept until gloo's threads have freed them. A group has two threads, and one or two operations in progress."""


class Operation:
    """An operation of a group. Invariant: its tensors are held by this side, in Python and in C++, as long as it exists.

    torch takes Python's lock when the references of C++ to a tensor become one, or none. With a reference of our own, neither
    happens in a thread of gloo.
    """

    def __init__(self, work: Any, tensors: List[Any]) -> None:
        self._work = work
        self._tensors = tensors
        self._holders = [_holder(tensor) for tensor in tensors]

    @property
    def completed(self) -> bool:
        """True once all ranks have taken part, or one has failed."""
        return self._work is None or bool(self._work.is_completed())

    @property
    def freed(self) -> bool:
        """True once neither this side nor a thread of gloo holds the work. torch < 2.1 cannot say it, so there it is never true."""
        return self._work is None and all(
            hasattr(tensor, "_use_count") and tensor._use_count() <= 2 for tensor in self._tensors
        )

    def wait(self) -> None:
        """Wait for all ranks, and drop the work. Raises RuntimeError if a rank is gone."""
        try:
            if self._work is not None:
                self._work.wait()
        finally:
            self.drop()

    def drop(self) -> bool:
        """Drop the work if the operation is completed; return True if it is."""
        if self.completed:
            self._work = None
        return self._work is None


class GlooGroup:
    """A gloo group of our own.

    Invariant: it is destroyed only while no operation is in progress in it. torch would wait for an operation without an answer,
    which would delay `destroy_process_group` and the end of the process. So an extra reference is held, which neither of them can
    drop.
    """

    def __init__(self, dist: Any, most_s: float) -> None:
        """Create the group, on all ranks. `most_s`: how long an operation waits for the slowest rank. Raises Refused."""
        self._dist = dist
        self._operations: List[Operation] = []
        """Those that are in progress or not freed. Bound: `_MOST_OPERATIONS`."""
        self._kept = False
        try:
            self._group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=most_s))
        except Exception as error:
            # The host name belongs to no interface, the interface does not exist, or this torch has no gloo.
            raise Refused(
                "The ranks cannot connect to each other over gloo, which headway_job.checkpoint uses besides the training's own "
                f"process group: {error}. Set GLOO_SOCKET_IFNAME, on all ranks, to the network interface over which the nodes "
                "reach each other, such as eth0."
            ) from error
        _keep_forever(self._group)

    @property
    def group(self) -> Any:
        """The group for torch's calls. Raises RuntimeError after `release`, as None would be the training's own group."""
        if self._group is None:
            raise RuntimeError("this rank has left")
        return self._group

    def started(self, work: Any, tensors: List[Any]) -> Operation:
        """Return the operation that has begun with these tensors."""
        operation = Operation(work, tensors)
        self._operations = [*(each for each in self._operations if not each.freed), operation][-_MOST_OPERATIONS:]
        return operation

    def release(self) -> bool:
        """Leave the group to torch's `destroy_process_group`, if no operation is in progress; return True if that is so."""
        if self._group is None:
            return True
        if self._kept or not all(each.drop() for each in self._operations):
            return False
        for operation in self._operations:
            if not operation.freed:
                _keep_forever(operation)  # some hundred bytes: its thread may come to it only after the end of Python
        self._operations = []
        group, self._group = self._group, None
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
        return True

    def destroy(self) -> None:
        """Destroy the group, which other ranks notice as a rank that is gone. Does nothing during an operation. Never raises."""
        group = self._group
        if group is None or not self.release():
            return
        try:
            self._dist.destroy_process_group(group)
        except Exception:
            pass  # ValueError, AssertionError: the program has destroyed it already

    def keep(self) -> None:
        """Keep the group and its operations, also later ones, to the end of the process, if the group was not released."""
        if self._group is not None and not self._kept:
            self._kept = True
            _keep_forever(self)


def _holder(tensor: Any) -> Any:
    """Return a tensor that refers to this one in C++."""
    holder = torch.empty_like(tensor)
    holder.grad = tensor
    return holder


def _keep_forever(thing: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
