"""GPUs that a policy chooses: jobs get them where Slurm can be told which, and `why` says where it cannot."""

from __future__ import annotations

from pathlib import Path

from controller.cycle.steps.own_requests import OwnRequests
from controller.slurm.embedded import ClusterDescription, NodeDescription
from controller.slurm.model.job import JobKey
from policies.api import load_policy
from policies.state.gpu_layout import GpuLayout, gpus_text
from tests.unit.controller.worlds.world import World

TREE = GpuLayout((0,) * 4 + (1,) * 4, (0, 0, 1, 1, 2, 2, 3, 3), (0,) * 8)
"""Two sockets of two PCIe switches of two GPUs."""


def world(folder: Path) -> World:
    nodes = (NodeDescription(names="n[1-2]"),)
    found = World(folder, ClusterDescription(nodes=nodes), load_policy("fifo-skip", {"gpus": "packed"}))
    found.knowledge.set_gpu_layouts({"n1": TREE, "n2": TREE})
    return found


def gpus(world: World, key: JobKey) -> dict[str, str]:
    """Node -> indices of the GPUs that the job holds, by Slurm's own record."""
    return {share.node: gpus_text(share.gpu_mask) for share in world.slurm.job(key.job_id).allocated}


async def test_jobs_get_the_gpus_that_the_policy_chose(tmp_path: Path) -> None:
    # given jobs of 1, 2 and 4 GPUs, of which Slurm by itself would give the last one GPUs on both sockets
    here = world(tmp_path)
    keys = [here.sbatch(1000.0, gpus_per_node=count) for count in (1, 2, 4)]
    # when they start
    await here.go_on(5)
    # then each has GPUs of one switch or of one socket, and why says which
    assert [gpus(here, key) for key in keys] == [{"n1": "0"}, {"n1": "2-3"}, {"n1": "4-7"}]
    assert here.ledger.pins[keys[2]].reason.endswith(
        "its GPUs are on one socket; Slurm was told to give it GPUs 4-7 of n1"
    )
    assert here.ledger.pins[keys[0]].reason.endswith("; Slurm was told to give it GPU 0 of n1")
    placed = [event.text for event in here.events.recent() if event.kind == "placed"]
    assert any(text.startswith("n1:4(IDX:4-7) by") for text in placed)


async def test_a_job_that_starts_later_gets_gpus_beside_those_that_run(tmp_path: Path) -> None:
    here = world(tmp_path)
    first, second = here.sbatch(3.0, gpus_per_node=1), here.sbatch(1000.0, gpus_per_node=2)
    await here.go_on(10)
    third = here.sbatch(1000.0, gpus_per_node=2)
    await here.go_on(5)
    assert [gpus(here, key) for key in (first, second, third)] == [{}, {"n1": "2-3"}, {"n1": "0-1"}]


async def test_jobs_that_are_about_to_start_have_their_gpus_already(tmp_path: Path) -> None:
    # given a job that is placed and has not started, because slurmctld starts nothing for a while
    here = world(tmp_path)
    first = here.sbatch(1000.0, gpus_per_node=2)
    await here.turn()
    second = here.sbatch(1000.0, gpus_per_node=2)
    # when the next one is placed
    result = await here.turn()
    # then the policy saw the GPUs of the first
    assert result.decided is not None
    assert here.ledger.pins[first].gpu_masks == (0b11,)
    assert here.ledger.pins[second].gpu_masks == (0b1100,)


async def test_where_slurm_cannot_be_told_the_choice_is_advice_and_why_says_so(tmp_path: Path) -> None:
    here = world(tmp_path)
    here.slurm.client.can_bind_gpus = lambda pin: False  # type: ignore[method-assign]
    keys = [here.sbatch(1000.0, gpus_per_node=count) for count in (1, 2)]
    await here.go_on(5)
    assert [gpus(here, key) for key in keys] == [{"n1": "0"}, {"n1": "1-2"}], "Slurm chose the lowest"
    assert here.ledger.pins[keys[1]].reason.endswith("GPUs 2-3 of n1 were chosen; Slurm cannot be told which")
    assert here.ledger.pins[keys[0]].reason.endswith("GPU 0 of n1 was chosen; Slurm cannot be told which")
    assert here.ledger.pins[keys[1]].gpu_masks == ()


async def test_the_own_request_of_a_job_that_slurm_keeps_bound_is_not_forgotten(tmp_path: Path) -> None:
    # given two jobs that are placed and do not start, of which Slurm keeps one bound to its GPUs
    here = world(tmp_path)
    keys = [here.sbatch(1000.0, gpus_per_node=2) for _ in range(2)]
    await here.turn()
    own = dict(here.ledger.originals)
    here.slurm.client.stays_bound = lambda key, original: key == keys[0]  # type: ignore[method-assign]
    # when their pins are undone
    await here.slurm.client.hold(keys)
    requests = OwnRequests(here.cycle.verbs, here.journal, here.ledger, here.events, here.clock)
    assert await requests.restore(keys, stay=True) == {}
    # then only the other one shows its own request again
    assert here.ledger.originals == {keys[0]: own[keys[0]]}


async def test_foreign_jobs_keep_their_gpus(tmp_path: Path) -> None:
    here = world(tmp_path)
    here.alive = False
    here.sbatch(1000.0, gpus_per_node=1, batch=False)
    await here.clock.advance(2.0)
    here.alive = True
    key = here.sbatch(1000.0, gpus_per_node=2)
    await here.go_on(5)
    assert gpus(here, key) == {"n1": "2-3"}


async def test_without_a_layout_nothing_is_chosen(tmp_path: Path) -> None:
    here = world(tmp_path)
    here.knowledge.set_gpu_layouts({})
    key = here.sbatch(1000.0, gpus_per_node=2)
    await here.go_on(5)
    assert gpus(here, key) == {"n1": "0-1"}
    assert here.ledger.pins[key].gpu_masks == ()
    assert "GPUs" not in here.ledger.pins[key].reason.partition("free")[2]


async def test_a_restarted_controller_knows_the_gpus_of_its_pins(tmp_path: Path) -> None:
    here = world(tmp_path)
    key = here.sbatch(1000.0, gpus_per_node=2)
    await here.turn()
    here.restart()
    assert here.ledger.pins[key].gpu_masks == (0b11,)
