"""Jobs that cross the same switch's link to the one above are near each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.agents.service import serve_agents
from controller.agents.topology import load_topology
from controller.base.errors import ConfigurationError, SlurmReplyError, SlurmUnavailableError
from controller.profiles.racks import Racks
from controller.profiles.store import ProfileStore
from controller.profiles.uplinks import links_of
from controller.profiles.windows import Links, own_nodes
from controller.slurm.configuration.topology import switches_of
from policies.serving.runtime.tasks.backoff import Backoff
from simulator.cluster.topology.slurm import parse_switches
from tests.unit.controller.agents.test_service import Beside
from tests.unit.controller.worlds.world import newest
from tests.unit.policies.processes import eventually

TREE = """
SwitchName=leaf1 Nodes=a[1-4]
SwitchName=leaf2 Nodes=b[1-4]
SwitchName=leaf3 Nodes=c[1-4]
SwitchName=row Switches=leaf[1-2]
SwitchName=top Switches=row,leaf3
"""


def tree_links(text: str = TREE) -> Links:
    return links_of(switches_of(text))


@pytest.mark.parametrize(
    ("nodes", "crossed"),
    [
        (["a1"], set()),
        (["a1", "a2", "a4"], set()),
        (["a1", "b1"], {"leaf1", "leaf2"}),
        (["a1", "a2", "c1"], {"leaf1", "row", "leaf3"}),
        (["a1", "b1", "c1"], {"leaf1", "leaf2", "row", "leaf3"}),
        (["a1", "stranger"], {"leaf1", "row", "top"}),
    ],
)
def test_a_job_crosses_the_uplinks_between_its_nodes(nodes: list[str], crossed: set[str]) -> None:
    assert set(tree_links()(nodes)) == {*nodes, *(f"uplink of {switch}" for switch in crossed)}


def test_jobs_on_the_same_uplink_are_neighbours() -> None:
    links = links_of(parse_switches(TREE))
    used = {
        name: set(links(nodes)) for name, nodes in {"ab": ["a1", "b1"], "ac": ["a2", "c1"], "aa": ["a3", "a4"]}.items()
    }
    assert used["ab"] & used["ac"] == {"uplink of leaf1"}
    assert not used["aa"] & (used["ab"] | used["ac"])


def test_without_switches_jobs_share_only_nodes() -> None:
    assert tree_links("") is own_nodes


@pytest.mark.parametrize(
    "text", [TREE + "SwitchName=other Nodes=a1", "SwitchName=x Switches=y\nSwitchName=y Switches=x"]
)
def test_switches_that_form_no_tree_are_reported_with_the_command(text: str) -> None:
    with pytest.raises(ConfigurationError, match="scontrol show topology: "):
        tree_links(text)


@pytest.mark.parametrize(("text", "warned"), [(TREE, False), ("SwitchName=x Switches=y", True)])
async def test_the_store_learns_them_as_soon_as_slurm_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, warned: bool
) -> None:
    # Given a Slurm that does not answer at first
    monkeypatch.setattr("controller.agents.topology._AWAY_S", 0.01)
    warnings: list[str] = []

    class Log:
        def info(self, *_words: Any, **_more: Any) -> None: ...

        def warning(self, event: str, **_more: Any) -> None:
            warnings.append(event)

    monkeypatch.setattr("controller.agents.topology.log", Log())
    asked = 0

    async def topology() -> str:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise SlurmUnavailableError("slurmctld is away")
        return text

    beside = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock")
    topologies: list[Racks] = []
    async with (
        serve_agents(beside.settings, newest(beside)) as server,
        load_topology(topologies.append, server, topology),
    ):
        assert server is not None

        async def crossed() -> set[str]:
            return set(await server.use_store(_crossed)) - {"a1", "b1"}

        async def learned() -> bool:
            return bool(await crossed()) or bool(warnings)

        await eventually(learned)
        await asyncio.sleep(0)
        assert (await crossed() == set(), warnings) == (warned, ["switches_not_known"] * warned)
        assert [racks.leaf["b1"] for racks in topologies] == ["leaf2"] * (not warned)


async def test_an_answer_that_is_not_understood_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a Slurm whose first answers are cut off, or fail
    monkeypatch.setattr("controller.agents.topology._PAUSES", Backoff(0.01, 0.01))
    cut_off = "SwitchName=x Switches=y"
    answers = [cut_off, cut_off, SlurmReplyError("a page of text"), OSError("no more files"), cut_off, TREE]

    async def topology() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    topologies: list[Racks] = []
    with capture_logs() as logs:
        async with load_topology(topologies.append, None, topology):

            async def learned() -> bool:
                return bool(topologies)

            await eventually(learned)
    # then the racks are known in the end, and a problem that stays was logged once
    assert topologies[0].leaf["b1"] == "leaf2"
    assert [log["event"] for log in logs] == ["switches_not_known"] * 4 + ["racks_known"]


def _crossed(store: ProfileStore) -> set[str]:
    return set(store.links(["a1", "b1"]))
