"""Judges one reading: a value or a documented error, in bounded time and memory, with the input's file left as it was."""

from __future__ import annotations

import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.fuzz.target import BrokenPromiseError, Target

GROWTH_FACTOR = 100
"""Bytes of memory for each byte of input, beside the target's `growth_bytes`."""
MOST_MESSAGE_CHARS = 20_000
"""Longest text of an error: it goes into a log, or to a terminal."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one reading."""

    outcome: str
    """"value", or the name of the documented error."""
    fault: str = ""
    """The kind of what is wrong, for counting: "crash", "hang", "growth" or "broken promise"; empty when nothing is."""
    detail: str = ""


class _HangError(BaseException):
    """Raised by the timer within a reading. Not an Exception, so that no handler of the parser takes it."""


def judge(target: Target, data: bytes, folder: Path) -> Verdict:
    """Read the input with the target, and return what came of it."""
    path = folder / target.file
    if target.file:
        path.write_bytes(data)
    highest, started_s = highest_bytes(), time.process_time()
    previous = signal.signal(signal.SIGPROF, _interrupt)
    signal.setitimer(signal.ITIMER_PROF, target.limit_s)
    try:
        verdict = _read(target, data, folder)
    except _HangError:
        return Verdict("", "hang", f"more than {target.limit_s:g} s of CPU time")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    if verdict.fault:
        return verdict
    took_s, grown = time.process_time() - started_s, highest_bytes() - highest
    if took_s > target.limit_s:
        return Verdict("", "hang", f"{took_s:.1f} s of CPU time")
    if grown > target.growth_bytes + GROWTH_FACTOR * len(data):
        return Verdict("", "growth", f"{grown >> 20} MiB for {len(data)} bytes")
    if target.file and (not path.is_file() or path.read_bytes() != data):
        return Verdict("", "broken promise", f"the file {target.file} was changed or removed")
    return verdict


def _read(target: Target, data: bytes, folder: Path) -> Verdict:
    try:
        target.take(data, folder)
    except target.errors as error:
        return _documented(error)
    except BrokenPromiseError as error:
        return Verdict("", "broken promise", str(error))
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return Verdict("", "crash", f"{_where(error)} {type(error).__name__}: {str(error)[:300]!r}")
    return Verdict("value")


def _documented(error: Exception) -> Verdict:
    text = str(error)
    if len(text) > MOST_MESSAGE_CHARS:
        return Verdict("", "growth", f"{_where(error)} a message of {len(text)} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Verdict("", "crash", f"{_where(error)} a message that cannot be printed: {text[:100]!r}")
    return Verdict(type(error).__name__)


def _where(error: BaseException) -> str:
    """Return the innermost place of the code under test."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" not in frame.filename]
    ours = [frame for frame in frames if "site-packages" not in frame.filename and "/lib/python" not in frame.filename]
    last = next(iter(reversed(ours or frames)), None)
    return f"{last.filename.rpartition('/')[2]}:{last.lineno}" if last else ""


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise _HangError


def highest_bytes() -> int:
    """Return the most memory that this process has ever had, without that of the process that forked it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
