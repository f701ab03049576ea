"""Which of gloo's collectives are still in progress, as torch's flight recorder lists them.

A collective that gloo's threads carry out writes its end into the recording in which it began. torch frees the recording's memory
when the profiler stops, without regard to these threads: after a stop that comes too early they write into freed memory, and the
process crashes at any later time. That is the case in every version of torch so far.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Optional

_PREFIX = "gloo:"


def in_progress(begin_ns: int, end_ns: int) -> Optional[bool]:
    """Return True if a collective of gloo that was called within this time (Unix time, ns) has not ended; None = torch cannot say.

    Older versions have no list of gloo's collectives, and others have none if TORCH_FR_BUFFER_SIZE is 0. Sends and receives of gloo
    are in no list: recordings leave them out (see left_out).
    """
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    if dump is None:
        return None
    try:
        listed = [each for each in json.loads(dump())["entries"] if each["profiling_name"].startswith(_PREFIX)]
        if not listed:
            return None
        return any(not each["retired"] and _called_within(each, begin_ns, end_ns) for each in listed)
    except Exception:
        return None  # the list of another version


def _called_within(entry: Any, begin_ns: int, end_ns: int) -> bool:
    return bool(begin_ns <= entry["time_created_ns"] <= end_ns)
