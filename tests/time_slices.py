"""Long time slices for processes that compute side by side."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_SLICE_NS = 50_000_000
_RESET_ON_FORK = 1
_SIZE = 48
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


def ask_for_long_slices() -> None:
    """Ask the kernel to let this process run for 50 ms at a time instead of about three.

    Ten processes on two cores evict each other from the caches, and on a machine with slow memory they spend much of their CPU time
    on that. The processes that this one starts keep short slices, so that they do not wait for it. Its nice value stays. Kernels
    before 6.12 ignore the wish, and where it cannot be expressed, nothing changes.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
    wish = struct.pack("IIQiIQQQ", _SIZE, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, _SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(wish, _SIZE), 0)
