"""Records of jobs, as `scontrol -o -d show job` prints them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

_SHARE = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS = re.compile(r"(?:^|,)gpu:(?:[^:(,]+:)?(\d+)")
_HOSTS = re.compile(r"([a-z]+)(?:\[([\d,-]+)\]|(\d+))")
_LONGEST_ARRAY = 100
TERMINAL = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "DEADLINE",
        "NODE_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "REVOKED",
    }
)


@dataclass(frozen=True, slots=True)
class Record:
    """One job, one task of an array, or one component of a heterogeneous job."""

    job_id: str
    """Its own id, by which its files are named."""
    root_id: str
    """The id that its submission printed."""
    part: str
    """"_3" for a task of an array, "+1" for a component; empty for an ordinary job."""
    fields: dict[str, str]
    gpus: dict[str, int]

    @property
    def state(self) -> str:
        """Slurm's state, without what it is about to do."""
        return self.fields.get("JobState", "")

    @property
    def restarts(self) -> int:
        """Number of times that Slurm has put it back into the queue."""
        return int(self.fields.get("Restarts", "0"))

    @property
    def begun_runs(self) -> int:
        """Number of runs that can have begun; the next run of a job that waits has not."""
        return self.restarts + (self.state != "PENDING")

    @property
    def has_ended(self) -> bool:
        """True when it will not run again by itself, and its nodes are free."""
        return self.state in TERMINAL

    @property
    def end_s(self) -> float | None:
        """Time of its end, in whole seconds since the Unix epoch; None if it has not ended."""
        text = self.fields.get("EndTime", "Unknown")
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) if self.has_ended and text[0].isdigit() else None


def parse(text: str) -> Iterator[Record]:
    """Yield every record; a record of several waiting tasks of an array once for each of them."""
    for line in text.splitlines():
        fields: dict[str, str] = {}
        for word in line.split():
            key, equals, value = word.partition("=")
            if equals:
                fields.setdefault(key, value)
        if "JobId" in fields:
            yield from _parts(fields, _gpus(line))


def _parts(fields: dict[str, str], gpus: dict[str, int]) -> Iterator[Record]:
    job_id = fields["JobId"]
    if "ArrayJobId" in fields:
        for task in _tasks(fields.get("ArrayTaskId", "")):
            yield Record(job_id, fields["ArrayJobId"], f"_{task}", fields, gpus)
    elif "HetJobId" in fields:
        yield Record(job_id, fields["HetJobId"], f"+{fields.get('HetJobOffset', '0')}", fields, gpus)
    else:
        yield Record(job_id, job_id, "", fields, gpus)


def _tasks(text: str) -> list[int]:
    """Return the tasks of "0-2,5%2"."""
    tasks: list[int] = []
    for part in text.partition("%")[0].split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        if first.isdigit():
            tasks += range(int(first), int(last or first) + 1, int(step or 1))
    return tasks[:_LONGEST_ARRAY]


def _gpus(line: str) -> dict[str, int]:
    shares = {}
    for names, gres in _SHARE.findall(line):
        for node in expand(names):
            shares[node] = sum(int(number) for number in _GPUS.findall(gres))
    return shares


def expand(names: str) -> list[str]:
    """Return the nodes of a host list: n1, n3, n4 for n[1,3-4]."""
    nodes = []
    for prefix, many, single in _HOSTS.findall(names):
        for part in (many or single).split(","):
            first, _, last = part.partition("-")
            nodes += [f"{prefix}{number}" for number in range(int(first), int(last or first) + 1)]
    return nodes
