"""Versions of modules come back with a checkpoint, so that each module is loaded as by torch.save and torch.load."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from headway_job.checkpoints.state import module_versions  # noqa: E402

from tests.unit.headway_job.checkpoints.conftest import ForkServer  # noqa: E402
from tests.unit.headway_job.checkpoints.state.versions import rewrite  # noqa: E402

PROGRAM = "state.versions.picky"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ddp", "ddp"), ("ddp", "compiled"), ("stage", "stage"), ("fsdp2", "ddp"), ("ddp", "fsdp2"),
        ("fsdp1", "fsdp1"), ("fsdp1", "ddp"), ("ddp", "fsdp1"),
    ],
)  # fmt: skip
def test_a_module_gets_the_version_with_which_it_was_saved(
    fork_server: ForkServer, folder: Path, before: str, after: str
) -> None:
    worlds = {"compiled": 1, "stage": 1}
    first = fork_server.run(PROGRAM, worlds.get(before, 2), kind=before, folder=folder, earlier=True)
    assert first.reported("saved") == 1, first.logs
    manifest = json.loads(next(folder.glob("step-*/manifest.json")).read_text())
    assert manifest["format"] in (3, 4), "earlier versions of this package read the checkpoint"

    second = fork_server.run(PROGRAM, worlds.get(after, 2), kind=after, folder=folder)

    assert set(second.ends) == {0}, second.logs
    for rank in range(len(second.ends)):
        assert (second.reported("start", rank), second.reported("seen", rank)) == (1, 1)


BAD: dict[str, Any] = {
    "text": "2",
    "by number": {"model": 2, 3: []},
    "a list of dicts": {"model": [{"first": 2}]},
    "a path that is a list": {"model": [([], {"first": {"version": 1}})]},
    "a step that is a tensor": {"model": [((torch.zeros(1),), {"first": {"version": 1}})]},
    "a version that is a list": {"model": [((), {"first": {"version": [1]}})]},
    "how to load it": {"model": [((), {"first": {"version": 1, "assign_to_params_buffers": True}})]},
    "too many": {"model": [((), {str(number): {} for number in range(100_001)})]},
}


@pytest.mark.parametrize("kind", ["ddp", "stage", "fsdp1"])
def test_a_checkpoint_without_versions_is_loaded_with_those_of_the_modules(
    fork_server: ForkServer, folder: Path, kind: str
) -> None:
    fork_server.run(PROGRAM, kind=kind, folder=folder)
    rewrite(folder, lambda state: state.pop(module_versions.KEY))

    ended = fork_server.run(PROGRAM, kind=kind, folder=folder)

    assert ended.ends == [0], ended.logs
    assert (ended.reported("start"), ended.reported("seen")) == (1, 2)


def test_versions_that_are_not_as_written_are_ignored(fork_server: ForkServer, folder: Path) -> None:
    fork_server.run(PROGRAM, kind="ddp", folder=folder)
    for step, (name, versions) in enumerate(BAD.items(), start=1):
        rewrite(folder, lambda state, versions=versions: state.update({module_versions.KEY: versions}))

        ended = fork_server.run(PROGRAM, kind="ddp", folder=folder)

        assert ended.ends == [0], (name, ended.logs)
        assert (ended.reported("start"), ended.reported("seen")) == (step, 2), name


def test_only_numbers_and_text_are_taken_and_no_attribute_is_asked_for() -> None:
    class Own(OrderedDict[str, Any]):
        """A dict that makes an entry for each attribute that is asked for."""

        def __getattr__(self, name: str) -> Any:
            return self.setdefault(name, Own())

    state: Any = OrderedDict(weight=1)
    facts = {"version": 3, "note": "x", "assign_to_params_buffers": True, "module": torch.nn.Linear(1, 1), 5: 5}
    state._metadata = {"": facts, 3: {}, "of": None}
    own = Own(inner=[state])

    assert module_versions.versions_in(own) == [(("inner", 0), {"": {"version": 3, "note": "x"}})]
    assert list(own) == ["inner"]


def test_only_what_leads_to_a_state_dict_is_copied() -> None:
    rows = [1, 2]
    tree = {"rows": rows, "pair": ({"weight": 5}, rows)}

    found = module_versions.attached(tree, [(("pair", 0), {"": {"version": 7}}), (("gone", "away"), {})], object())

    assert found == tree
    assert found["rows"] is found["pair"][1] is rows
    assert found["pair"][0]._metadata == {"": {"version": 7}}
    assert not hasattr(tree["pair"][0], "_metadata")
