"""Names, comments and paths in any encoding: what is read of them goes into the journal and into messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from controller.cycle.changes import run_record
from controller.observe.observer import Observer
from controller.slurm.model.job import SlurmJob
from controller.slurm.scontrol.incremental import JobTable
from controller.slurm.scontrol.parse_nodes import parse_node
from controller.slurm.scontrol.rows import RowCache, nothing_ticks
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from policies.wire.messages import serialize_state
from protos.headway.v1 import admin_pb2
from tests.unit.controller.examples.build import snapshot
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, SUBMIT_S, job_line, node_line

LATIN = b"caf\xe9"
ENDED = {**RUNNING, "state": "COMPLETED", "nodes": "n1", "details": ""}
WRITTEN = {
    **dict.fromkeys(
        ("name", "user", "account", "qos", "features", "licenses", "comment", "command", "workdir"), "caf?"
    ),
    "reservation": "Reservation=caf? ",
    "stdout": "/tmp/x TresPerNode=gres:gpu:caf?:2",
}
"""Fields in which a user or an administrator may have written in Latin-1."""


def read(line: str) -> SlurmJob:
    (job,) = JobTable(CLOCK).update(line.encode().replace(b"caf?", LATIN) + b"\n").jobs
    return job


def texts(value: object, but: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield all texts in it."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in but:
                yield from texts(getattr(value, field.name))
    elif isinstance(value, tuple | frozenset):
        for item in value:
            yield from texts(item)


@pytest.mark.parametrize("state", [{}, RUNNING, ENDED], ids=["waits", "runs", "ended"])
def test_every_text_of_a_job_can_be_stored_and_sent(state: dict[str, str]) -> None:
    found = read(job_line(**state | WRITTEN | {"admin_comment": "caf?"}))

    assert (found.name, found.user, found.features) == (r"caf\xe9",) * 3
    for text in texts(found, frozenset({"admin_comment"})):
        text.encode()  # raises an error for what was no UTF-8


def test_the_end_of_a_job_with_a_name_in_latin_1_is_recorded(tmp_path: Path) -> None:
    ended = read(job_line(**ENDED | {"name": "caf?"}))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.load_ledger()
        journal.record_runs([run_record(ended, None, Ledger(), SUBMIT_S + 700.0)])

        assert journal.last_run("7") is not None
        assert journal.estimates(5, 1, [(ended.user, ended.name)])


def test_a_queue_with_such_a_job_can_be_shown_and_decided_on() -> None:
    waiting = read(job_line(**WRITTEN))
    state = Observer().observe(snapshot(waiting), Ledger(), frozenset({"dl"})).state

    assert serialize_state(state)
    assert admin_pb2.QueueEntry(user=waiting.user, name=waiting.name).SerializeToString()


def test_so_can_what_administrators_write_about_nodes() -> None:
    line = node_line("n1", "MIXED+DRAIN", more=" Reason=caf? [root@2026-11-27T00:00:00]")
    (node,) = RowCache(b"NodeName=", parse_node, nothing_ticks).update(line.encode().replace(b"caf?", LATIN) + b"\n")

    assert r"caf\xe9" in node.reason
    for text in texts(node):
        text.encode()
