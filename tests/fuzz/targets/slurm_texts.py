"""Output of Slurm's programs, in which users choose names, comments and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from controller.base.errors import SlurmError
from controller.slurm.hostlist import expand_indices, expand_nodes
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.incremental import JobTable, parse_answer
from controller.slurm.scontrol.run import Completed
from controller.slurm.scontrol.scontrol import sentence
from policies.serving.runtime.hostlist import fold
from tests.fuzz.target import BrokenPromiseError, Target
from tests.unit.controller.slurm.scontrol.releases import SLURM_24_11, SLURM_26_05
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, job_line, node_line

TEXTS = "HEADWAY_SLURM_TEXTS"
"""Environment variable: folder of recorded texts of Slurm, with a folder for each release. Those of tests/unit are always used."""
_MOST_FOLDED = 2000
_ARRAY_BYTES = 512 << 20
"""Slurm allows arrays of four million tasks, and prints them as a list of a few characters."""
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b")
_PARTITION = "PartitionName=dl AllowGroups=ALL Nodes=n[1-4] MaxTime=7-00:00:00 State=UP TotalCPUs=256 TotalNodes=4"
_RESERVATION = (
    f"ReservationName=r StartTime={CLOCK.token}1795176869 EndTime={CLOCK.token}1795186869 Nodes=n[1-2] State=ACTIVE"
)
_CONFIG = (
    "Configuration data as of 2026-11-23T00:00:00\nClusterName      = test\nSLURM_CONF              = /etc/slurm/slurm.conf\n"
    "TopologyPlugin          = topology/tree\nSLURM_VERSION           = 22.05.8\n"
)


def recorded(*names: str) -> list[bytes]:
    """Return the recorded texts of these names, of all releases; none where there is no such folder."""
    folder = os.environ.get(TEXTS, "")
    if not folder:
        return []
    paths = [path for name in names for path in sorted(Path(folder).glob(f"*/{name}"))]
    return [_TIME.sub(f"{CLOCK.token}1795176869", path.read_text()).encode() for path in paths]


def jobs() -> list[bytes]:
    """Return answers to `scontrol show job`."""
    lines = [job_line(), job_line(**RUNNING), *SLURM_24_11.values(), *SLURM_26_05.values()]
    lines += [
        job_line(
            array="ArrayJobId=7 ArrayTaskId=0-5,9%2 ", comment="headway=preemptible", admin_comment="headway:hold"
        ),
        job_line(raw="8", name="a UserId=b(0) GroupId=c\nJobId=9 JobName=", comment="x SubmitTime= y"),
        job_line(**RUNNING | {"state": "COMPLETING", "nodes": "n[2-3]", "tres": "cpu=6,mem=3000M,node=3,gres/gpu=6"}),
    ]
    texts = [*lines, "\n".join(lines[:6]) + "\n", "No jobs in the system\n"]
    return [text.encode() for text in texts] + recorded(
        "show-job-oneliner.txt", "show-job-detail.txt", "show-job-ended.txt"
    )


def read_jobs(data: bytes, _folder: Path) -> object:
    """Two readings of a table, of which the second has the same jobs as before; and the answer about one job alone."""
    table = JobTable(CLOCK)
    table.update(jobs_before())
    first = table.update(data)
    again = table.update(data)
    if first.jobs != again.jobs:
        raise BrokenPromiseError("the same text gives other jobs")
    parse_answer(data, "7", CLOCK)
    return first


def jobs_before() -> bytes:
    """The reading before."""
    return (job_line() + "\n" + job_line(**RUNNING | {"raw": "8"}) + "\n").encode()


class Recorded:
    """A CommandRunner whose scontrol prints the same text, cut into sections as it was asked to."""

    def __init__(self, sections: Sequence[bytes]) -> None:
        self._sections = sections

    async def run(self, program: str, words: Sequence[str], text: bytes = b"") -> Completed:
        separator = text.split(b"\n", 1)[0].removeprefix(b"show hostnames ") + b"\n"
        return Completed(
            (program, *words), 0, separator.join([b"", *(section + b"\n" for section in self._sections), b""]), ""
        )


def at_once(work: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise BrokenPromiseError("the coroutine waits")


def snapshots() -> list[bytes]:
    """Return jobs, nodes, partitions and reservations, with a line between them."""
    nodes = [(node_line() + "\n" + node_line("n2", "MIXED+DRAIN", more=" Reason=broken [root@x] ") + "\n").encode()]
    nodes += recorded("show-node.txt")
    parts = [(_PARTITION + "\n").encode(), *recorded("show-partition.txt")]
    reserved = [(_RESERVATION + "\n").encode(), b"No reservations in the system\n"]
    return [b"\n----\n".join((jobs_before(), each, parts[0], one)) for each in nodes for one in reserved]


def read_snapshot(data: bytes, _folder: Path) -> object:
    """Take a whole reading through the client, twice."""
    sections = [*data.split(b"\n----\n"), b"", b"", b""][:4]
    client = CommandLineClient(Recorded(sections), CLOCK, now=lambda: 1.0)
    at_once(client.snapshot())
    return at_once(client.snapshot())


def read_facts(data: bytes, _folder: Path) -> object:
    """Read version and settings, and make one line of the same text as an error message."""
    facts = at_once(
        CommandLineClient(Recorded(data.split(b"\n----\n", 1) if b"\n----\n" in data else [data, b""]), CLOCK).facts()
    )
    if len(sentence(data.decode("utf-8", "replace"))) > 2000:
        raise BrokenPromiseError("the logged message of Slurm has no length limit")
    return facts


def read_names(data: bytes, _folder: Path) -> object:
    """Expand a list of nodes and fold it again, and a list of array tasks."""
    text = data.decode("utf-8", "replace")
    names: tuple[str, ...] = ()
    try:
        names = expand_nodes(text)
    except SlurmError:
        expand_indices(text)
    if 0 < len(names) <= _MOST_FOLDED and expand_nodes(fold(names)) != names:
        raise BrokenPromiseError("folded names are other names")
    return names


SLURM_TEXTS = (
    Target(
        "scontrol-jobs",
        "`scontrol show job`: jobs, with names and comments of users",
        "text",
        jobs,
        read_jobs,
        (SlurmError,),
        cost=10,
        limit_s=60,
        growth_bytes=8 * _ARRAY_BYTES,
    ),
    Target(
        "scontrol-all",
        "nodes, partitions and reservations, with reasons of administrators",
        "text",
        snapshots,
        read_snapshot,
        (SlurmError,),
        cost=20,
    ),
    Target(
        "scontrol-config",
        "`scontrol version`, `show config`, and messages of errors",
        "text",
        lambda: [
            b"slurm 22.05.8\n----\n" + _CONFIG.encode(),
            *(b"slurm 25.11.7\n----\n" + each for each in recorded("show-config.txt")),
        ],
        read_facts,
        (SlurmError,),
        cost=3,
    ),
    Target(
        "node-lists",
        "lists of nodes and of array tasks",
        "text",
        lambda: [b"n1", b"n[1-3,07],gpu[01-02]x[1-4]", b"0,2-3,10-20:5%5", b"(null)", b"n[001-128]", b"a,b,c-[1-2]"],
        read_names,
        (SlurmError,),
        cost=8,
        growth_bytes=_ARRAY_BYTES,
    ),
)
