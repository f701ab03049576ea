"""Every target reads genuine inputs, survives mutated ones, and shows no fault for an input that once showed one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.engine import Fault, input_of, missing, run, shares, shrink
from tests.fuzz.oracle import highest_bytes, judge
from tests.fuzz.servers import SERVERS
from tests.fuzz.target import BrokenPromiseError, Target
from tests.fuzz.targets import TARGETS

KEPT = sorted((Path(__file__).parent / "kept").glob("*.*"))
RUNS = 24_000
"""Inputs of all targets together; `python -m tests.fuzz` reads more."""
SEED = 20261123


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    if missing(target):
        pytest.skip(missing(target))
    tally = run(target, range(shares(list(TARGETS.values()), RUNS)[name]), SEED)
    assert [f"{fault.kind}: {fault.detail} (input {fault.number})" for fault in tally.faults.values()] == []
    assert tally.runs == tally.outcomes.total() >= 20


@pytest.mark.parametrize("name", TARGETS)
def test_a_genuine_input_is_read(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    if missing(target):
        pytest.skip(missing(target))
    assert "value" in {judge(target, data, tmp_path).outcome for data in target.corpus()}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_an_input_that_showed_a_fault_shows_it_no_more(path: Path, tmp_path: Path) -> None:
    verdict = judge(TARGETS[path.name.rpartition(".")[0]], path.read_bytes(), tmp_path)
    assert (verdict.fault, verdict.detail) == ("", "")


def _take(data: bytes, folder: Path) -> object:
    if data.startswith(b"crash"):
        raise KeyError("a")
    if data.startswith(b"long"):
        raise ValueError("x" * 100_000)
    if data.startswith(b"unprintable"):
        raise ValueError("\ud800")
    if data.startswith(b"remove"):
        (folder / "file").unlink()
    if data.startswith(b"grow"):
        return len(b"x" * (highest_bytes() + (200 << 20)))
    if data.startswith(b"promise"):
        raise BrokenPromiseError("no")
    while data.startswith(b"hang"):
        pass
    raise ValueError("refused")


BAD = Target(
    "bad", "a parser with every fault", "text", lambda: [b"fine"], _take, (ValueError,), file="file", limit_s=0.2
)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"fine", ""),
        (b"crash", "crash"),
        (b"long", "growth"),
        (b"unprintable", "crash"),
        (b"remove", "broken promise"),
        (b"grow", "growth"),
        (b"promise", "broken promise"),
        (b"hang", "hang"),
    ],
)
def test_each_fault_is_seen(data: bytes, fault: str, tmp_path: Path) -> None:
    verdict = judge(BAD if fault == "hang" else replace(BAD, limit_s=30.0), data, tmp_path)
    assert verdict.fault == fault
    assert verdict.outcome == ("" if fault else "ValueError")


def test_an_input_that_shows_a_fault_is_shortened(tmp_path: Path) -> None:
    data = b"crash" + b"x" * 500
    detail = judge(BAD, data, tmp_path).detail
    assert shrink(BAD, Fault("bad", 1, "crash", detail, data)).data == b"crash"


def test_inputs_follow_from_the_seed() -> None:
    target = TARGETS["lease"]
    corpus = tuple(target.corpus())
    first = [input_of(target, corpus, 1, number) for number in range(200)]
    assert first == [input_of(target, corpus, 1, number) for number in range(200)]
    assert first != [input_of(target, corpus, 2, number) for number in range(200)]
    assert first[: len(corpus)] == list(corpus)


def test_the_command_says_what_came_of_the_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "lease", "--target", "tickets", "--runs", "400", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["target"] for row in rows] == ["lease", "tickets"]
    assert all(row["runs"] == sum(row["outcomes"].values()) and not row["faults"] for row in rows)


def test_every_target_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) >= 30
    assert {line.split()[0] for line in listed} >= set(TARGETS)


def test_the_document_names_every_target() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text()
    assert [name for name in (*TARGETS, *SERVERS) if f"`{name}`" not in text] == []
