"""The end of forked children of a process in which libkineto was used.

libkineto starts a thread at its first use, and at exit it destroys the condition variable on which the thread waits. A forked child
does not have the thread, but its copy of the variable counts it as waiting: the child's exit would wait for it for ever. So such a
child ends after Python's own atexit functions and after its output has been written, without destructors of C++. This does not
concern os._exit, by which multiprocessing and the DataLoader end their workers.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional


class ForkedChildren:
    """Lets children of this process exit. Invariant: in the child only C functions are called that were looked up before."""

    def __init__(self) -> None:
        self._libc: Optional[Any] = None

    def prepare(self) -> None:
        """Prepare for children; call it before libkineto is used. Raises AttributeError if the C library lacks on_exit (musl)."""
        if self._libc is None:
            libc = ctypes.CDLL(None)
            for name in ("on_exit", "__cxa_atexit", "_exit", "fflush"):
                getattr(libc, name)
            self._libc = libc

    def end_without_destructors(self) -> None:
        """Have the calling process, a forked child, end as the module describes. Without `prepare`, nothing changes."""
        libc = self._libc
        if libc is not None:
            # Functions are called in the opposite order at exit; that of on_exit gets the exit status.
            libc.on_exit(_address(libc._exit), None)
            getattr(libc, "__cxa_atexit")(_address(libc.fflush), None, None)


def _address(function: Any) -> ctypes.c_void_p:
    return ctypes.cast(function, ctypes.c_void_p)


children = ForkedChildren()
"""The one object of a process; its children inherit it."""
