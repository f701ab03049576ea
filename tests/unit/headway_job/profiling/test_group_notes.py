"""Groups of recorded calls: from lists as torch's flight recorder writes them, and from the calls of Python."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from headway_job.profiling import gloo_trace, group_notes
from headway_job.profiling.group_notes import GroupNotes, key_of

_REDUCED = key_of("gloo:all_reduce", [[10]])
_REDUCED_BY_NCCL = key_of("nccl:all_reduce", [[10]])


class Group:
    """A process group."""


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, Group]:
    """Two groups that torch knows."""
    made = {"one": Group(), "two": Group()}
    names = {group: name for name, group in made.items()}
    core = SimpleNamespace(_world=SimpleNamespace(pg_names=names, pg_map=names))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", core)
    return made


def tensor(*shape: int) -> Any:
    return SimpleNamespace(shape=shape)


def entry(called_ns: int, group: str, name: str = "gloo:all_reduce", shapes: Any = ((10,),)) -> dict[str, Any]:
    return {
        "record_id": called_ns, "profiling_name": name, "time_created_ns": called_ns, "process_group": [group, "default_pg"],
        "input_sizes": shapes,
    }  # fmt: skip


def listed(monkeypatch: pytest.MonkeyPatch, entries: list[Any]) -> GroupNotes:
    monkeypatch.setattr(gloo_trace, "dump", lambda: json.dumps({"entries": entries}).encode())
    notes = GroupNotes()
    notes.take_list(5, 20)
    return notes


def test_torch_lists_the_groups(groups: dict[str, Group], monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(9, "two"), entry(7, "one"), entry(8, "one", shapes=[[11]]), entry(4, "early"), entry(21, "late")]
    notes = listed(monkeypatch, entries)
    assert notes.names({_REDUCED: 2}) == {_REDUCED: ["one", "two"]}
    assert notes.names({_REDUCED_BY_NCCL: 1}) == {_REDUCED_BY_NCCL: [""]}  # of another backend


def test_calls_that_torch_lists_no_more_repeat_the_last_ones(
    groups: dict[str, Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = listed(monkeypatch, [entry(7, "one"), entry(8, "two"), entry(9, "two")])
    assert notes.names({_REDUCED: 7})[_REDUCED] == ["two", "one", "two", "two", "one", "two", "two"]
    assert notes.names({_REDUCED: 2})[_REDUCED] == ["two", "two"]


@pytest.mark.parametrize(
    "entries", [[{"profiling_name": "gloo:all_reduce"}], [entry(7, "one") | {"record_id": None}, 3]]
)
def test_a_list_of_another_version_says_nothing(
    groups: dict[str, Group], monkeypatch: pytest.MonkeyPatch, entries: list[Any]
) -> None:
    assert listed(monkeypatch, entries).names({_REDUCED: 1}) == {_REDUCED: [""]}


def test_with_one_group_no_list_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SimpleNamespace(_world=SimpleNamespace(pg_map={Group(): None}))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", core)
    monkeypatch.setattr(gloo_trace, "dump", lambda: pytest.fail("it takes time in the training thread"))
    GroupNotes().take_list(5, 20)


def test_python_tells_the_groups_of_its_calls(groups: dict[str, Group]) -> None:
    notes = GroupNotes()
    part, whole = tensor(5), tensor(10)
    for name in ("one", "two"):
        assert notes.watch("allreduce")(groups[name], [whole], object()) is False
    notes.watch("_allgather_base")(groups["one"], whole, part, object())
    notes.watch("_reduce_scatter_base")(groups["two"], part, whole, object())
    notes.watch("allgather")(groups["two"], [[tensor(7)] * 2], [tensor(7)], object())
    gathered, scattered = key_of("nccl:_all_gather_base", [[5]]), key_of("nccl:_reduce_scatter_base", [[10]])
    again = key_of("nccl:all_gather", [[7]])
    # of three recorded calls, one came from C++
    assert notes.names({_REDUCED_BY_NCCL: 3, gathered: 1, scattered: 1, again: 1}) == {
        _REDUCED_BY_NCCL: ["one", "two", ""],
        gathered: ["one"],
        scattered: ["two"],
        again: ["two"],
    }


def test_calls_of_which_not_all_were_recorded_are_only_certain_in_one_group(groups: dict[str, Group]) -> None:
    mixed, alike = GroupNotes(), GroupNotes()
    for _ in range(2):
        mixed.watch("broadcast")(groups["one"], [tensor(10)])
        mixed.watch("broadcast")(groups["two"], [tensor(10)])
        alike.watch("broadcast")(groups["one"], [tensor(10)])
    sent = key_of("gloo:broadcast", [[10]])
    assert mixed.names({sent: 1}) == {sent: [""]}
    assert alike.names({sent: 1}) == {sent: ["one"]}


def test_arguments_of_another_version_and_too_many_calls_are_left_out(
    groups: dict[str, Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = GroupNotes()
    assert notes.watch("allreduce")(groups["one"]) is False
    assert notes.watch("allreduce")(groups["one"], [3]) is False
    notes.watch("allreduce")(Group(), [tensor(10)])  # of a group that torch does not know
    assert notes.names({_REDUCED: 1}) == {_REDUCED: [""]}
    monkeypatch.setattr(group_notes, "_MAX_NOTES", 2)
    for _ in range(3):
        notes.watch("allreduce")(groups["one"], [tensor(10)])
    assert notes.names({_REDUCED: 4}) == {_REDUCED: ["", "one", "", ""]}
