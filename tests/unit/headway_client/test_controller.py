"""Both clients and a whole controller: a process of its own, with an embedded Slurm whose jobs submit themselves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from headway_client import ClosedError, EventKind, JobState, UnavailableError, WaitTimeoutError

from slurm.processes import accepts
from tests.unit.headway_client.conftest import Both, MakeClient
from tests.unit.policies.processes import running

DEADLINE_S = 60.0
CONTROLLER = "from controller.daemon.cli import main; main()"
CLUSTER = """
[[nodes]]
names = "n[1-2]"
[[partitions]]
name = "dl"
[[jobs]]
gpus = 8
nodes = 2
duration_s = 3000
[[jobs]]
at_s = 0.2
gpus = 4
duration_s = 3000
user = "bob"
[[jobs]]
at_s = 0.2
gpus = 4
duration_s = 0.5
user = "bob"
"""


@pytest.fixture
def settings(folder: Path) -> Path:
    (folder / "cluster.toml").write_text(CLUSTER)
    path = folder / "controller.toml"
    path.write_text(
        f'partitions = ["dl"]\nslurm_client = "embedded"\nembedded_cluster = "{folder}/cluster.toml"\n'
        f'runtime_dir = "{folder}"\nstate_dir = "{folder}/state"\npolicy_address = "unix://{folder}/policy.sock"\n'
        f'metrics_address = ""\nagents_address = "unix://{folder}/agents.sock"\n'
    )
    return path


@asynccontextmanager
async def controller(settings: Path) -> AsyncIterator[None]:
    """A controller that answers; killed at the end."""
    with running(sys.executable, "-c", CONTROLLER, "run", "--config", str(settings)) as process:
        async with asyncio.timeout(DEADLINE_S):
            while not accepts(settings.parent / "status.sock"):
                assert process.poll() is None, process.communicate()
                await asyncio.sleep(0.05)
        yield


async def test_a_whole_story(folder: Path, settings: Path, connected: MakeClient) -> None:
    async with connected(folder / "admin.sock", timeout_s=DEADLINE_S) as client:
        async with controller(settings):
            following = await _story(client)
        # when the controller is killed, then its listeners know
        with pytest.raises(UnavailableError):
            async with asyncio.timeout(DEADLINE_S):
                while await following() is not None:
                    pass


async def _story(client: Both) -> Callable[[], Any]:
    # given a job on all nodes, and two that wait for it; a program that waits need not know when Slurm was read first
    runs = await client.wait(1, JobState.RUNNING, every_s=0.1, timeout_s=DEADLINE_S)
    assert (runs.state, runs.facts["num_gpus"]) == (JobState.RUNNING, "16")
    assert (await client.wait(2, {JobState.WAITING}, every_s=0.1, timeout_s=DEADLINE_S)).state is JobState.WAITING
    with pytest.raises(WaitTimeoutError, match="job 2 is still waiting after"):
        await client.wait(2, JobState.ENDED, every_s=0.1, timeout_s=0.3)
    following = await client.listen()
    # when the first is to have half of its GPUs
    record = await client.resize(1, 8, force=True, within_s=1)
    assert (await client.wait(1, every_s=0.1, timeout_s=DEADLINE_S)).state is not JobState.RUNNING
    # then the others get nodes too, and one of them ends soon
    assert (await client.wait(2, "running", every_s=0.1, timeout_s=DEADLINE_S)).facts["num_gpus"] == "4"
    assert (await client.wait(3, JobState.ENDED, every_s=0.1, timeout_s=DEADLINE_S)).state is JobState.ENDED
    (listed,) = (await client.preemptions(number=record.number)).preemptions
    assert (listed.gpus, listed.job_id) == (8, "1") and listed.stopped_s is not None
    # and events tell of it, and a screen shows it
    kinds: set[EventKind] = set()
    async with asyncio.timeout(DEADLINE_S):
        while not {EventKind.PREEMPT, EventKind.PLACED, EventKind.STARTED, EventKind.ENDED} <= kinds:
            kinds.add((await following()).kind)
    screen = await client.snapshot()
    assert (screen.status.slurm_client, screen.status.gpus_total) == ("embedded", 16)
    assert {(entry.job_id, entry.user) for entry in screen.queue.entries} == {("1", "alice"), ("2", "bob")}
    assert (await client.profiles()).kinds == ()
    assert (await client.export_profiles()).models == ()
    return following


async def test_a_wait_outlives_the_controller(folder: Path, settings: Path, connected: MakeClient) -> None:
    async with connected(folder / "status.sock") as client:
        # given a program that waits before there is a controller
        waiting = asyncio.ensure_future(client.wait(1, "running", every_s=0.1, away_s=DEADLINE_S))
        await asyncio.sleep(0.3)
        async with controller(settings):
            assert (await asyncio.wait_for(waiting, DEADLINE_S)).state is JobState.RUNNING
            longer = asyncio.ensure_future(client.wait(1, JobState.ENDED, every_s=0.1, away_s=DEADLINE_S))
            await asyncio.sleep(0.3)
        # when the controller is gone, then it waits for the next, until the client is closed
        await asyncio.sleep(0.3)
        assert not longer.done()
        client.client.close()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(longer, DEADLINE_S)
