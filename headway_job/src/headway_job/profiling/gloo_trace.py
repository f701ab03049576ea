"""Which of gloo's collectives are still in progress, as torch's flight recorder lists them.

A collective that gloo's threads carry out writes its end into the recording in which it began. torch frees the recording's memory
when the profiler stops, without regard to these threads: after a stop that comes too early they write into freed memory, and the
process crashes at any later time. That is the case in every version of torch so far.
"""

from __future__ import annotations

import json
import sys
from typing import Any, List, Optional, Tuple

_PREFIX = "gloo:"


def in_progress(begin_ns: int, end_ns: int) -> Optional[bool]:
    """Return True if a collective of gloo that was called within this time (Unix time, ns) has not ended; None = torch cannot say.

    Older versions have no list of gloo's collectives, and others have none if TORCH_FR_BUFFER_SIZE is 0. Sends and receives of gloo
    are in no list: recordings leave them out (see left_out).
    """
    try:
        dumped = dump()
        if dumped is None:
            return None
        listed = [each for each in json.loads(dumped)["entries"] if each["profiling_name"].startswith(_PREFIX)]
        if not listed:
            return None
        return any(not each["retired"] and _called_within(each, begin_ns, end_ns) for each in listed)
    except Exception:
        return None  # the list of another version


def dump() -> Optional[bytes]:
    """Return the list of the newest collectives as torch writes it; None = it has none. Raises the errors of another version."""
    write = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    return None if write is None else write()


def called(dumped: Optional[bytes], begin_ns: int, end_ns: int) -> List[Tuple[str, List[List[int]], str]]:
    """Return the collectives of a list that were called within this time (Unix time, ns), oldest first.

    Each has the name of its event, the sizes of its inputs and the name of its group. Empty: the list is of another version.
    """
    try:
        return [
            (each["profiling_name"], each["input_sizes"], str(each["process_group"][0]))
            for each in sorted(json.loads(dumped or b"{}").get("entries", ()), key=lambda each: each["record_id"])
            if _called_within(each, begin_ns, end_ns)
        ]
    except Exception:
        return []


def _called_within(entry: Any, begin_ns: int, end_ns: int) -> bool:
    return bool(begin_ns <= entry["time_created_ns"] <= end_ns)
