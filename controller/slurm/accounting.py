"""Slurm's accounting of one job, by sacct: each of its runs, also those before a requeue."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.base.text import clip
from controller.slurm.scontrol.run import CommandRunner

_FIELDS = ("JobIDRaw", "Submit", "Start", "End", "ElapsedRaw", "State", "AllocTRES", "NodeList", "User", "JobName")
"""The name is last: a user may have put anything into it, also line breaks."""
_MOST_RUNS = 1000
_MOST_WAITING = 16
"""Requests that may wait for their turn; further ones get reports without the accounting."""
_STORAGE = "AccountingStorageType"


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """One run of a job. Times are seconds since the Unix epoch."""

    raw_id: int
    submit_s: float
    start_s: float | None
    """None: it has not started."""
    end_s: float | None
    """None: it has not ended."""
    elapsed_s: float
    state: str
    gpus: int
    nodes: str
    """In Slurm's words, "n[1-2]"."""
    user: str
    name: str


class Accounting:
    """Reads Slurm's accounting. Invariant: one sacct at a time, so that users' requests are no burden on slurmdbd."""

    def __init__(self, runner: CommandRunner) -> None:
        """`runner` runs sacct with SLURM_TIME_FORMAT=%s."""
        self._runner = runner
        self._one = asyncio.Lock()
        self._waiting = 0

    async def runs(self, job_id: str) -> list[AccountedRun]:
        """Return the runs of all jobs that had that id, oldest first; none where the accounting knows none. Raises SlurmError."""
        separator = f"|{secrets.token_hex(8)}|"  # that no name of a job has in it
        arguments = (
            f"--jobs={job_id}", "--duplicates", "--allocations", "--parsable2", f"--delimiter={separator}", "--noheader",
            f"--format={','.join(_FIELDS)}",
        )  # fmt: skip
        if self._waiting >= _MOST_WAITING:
            raise SlurmUnavailableError("sacct: too many users ask for reports at once; try again in a moment")
        self._waiting += 1
        try:
            async with self._one:
                done = await self._runner.run("sacct", arguments)
        finally:
            self._waiting -= 1
        if done.status != 0:
            raise SlurmReplyError(f"sacct: {clip(done.stderr.strip()) or f'exit status {done.status}'}")
        rows = _rows(done.stdout.decode("utf-8", "backslashreplace"), separator)[-_MOST_RUNS:]
        found = [run for row in rows if (run := _run(row, separator)) is not None]
        return sorted(found, key=lambda run: run.submit_s)


def keeps_accounting(settings: Mapping[str, str]) -> bool:
    """Return whether Slurm, with these settings of slurm.conf, has a database of past jobs."""
    return settings.get(_STORAGE, "").endswith("slurmdbd")


def _rows(output: str, separator: str) -> list[str]:
    """Return the rows of the output. A line without separators belongs to the name of the job in the row before it."""
    rows: list[list[str]] = []
    for line in output.removesuffix("\n").split("\n"):
        if separator in line or not rows:
            rows.append([line])
        else:
            rows[-1].append(line)
    return ["\n".join(lines) for lines in rows if lines != [""]]


def _run(row: str, separator: str) -> AccountedRun | None:
    """Return the run in one row; None for a run that never started, which may have its end as the start. Raises SlurmReplyError."""
    cells = row.split(separator)
    try:
        raw_id, submit, start, end, elapsed, state, tres, nodes, user, name = cells
        found = AccountedRun(
            int(raw_id), _time(submit) or 0.0, _time(start), _time(end), float(elapsed or 0), state.split(" ")[0],
            _gpus(tres), "" if nodes == "None assigned" else nodes, user, name,
        )  # fmt: skip
    except ValueError:
        raise SlurmReplyError(f"sacct: a row is not understood: {clip(row)}") from None
    cancelled_in_the_queue = not found.nodes and found.end_s == found.start_s
    return None if found.start_s is None or cancelled_in_the_queue else found


def _time(text: str) -> float | None:
    return None if text in {"", "Unknown", "None"} else float(text)


def _gpus(tres: str) -> int:
    """Return the GPUs of "billing=4,cpu=4,gres/gpu=2,gres/gpu:a100=2"; of typed ones alone their sum."""
    counts = dict(part.partition("=")[::2] for part in tres.split(",") if part.startswith("gres/gpu"))
    if "gres/gpu" in counts:
        return int(counts["gres/gpu"])
    return sum(map(int, counts.values()))
