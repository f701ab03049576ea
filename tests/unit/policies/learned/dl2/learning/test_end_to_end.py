"""Continued learning over real gRPC, with real processes for the server and for the training."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from policies.api import LearningStatus, Outcome
from policies.errors import PolicyServerError
from policies.learned.dl2.learning.feedback.network_copy import CRITIC_UPDATES, FEEDBACK_UPDATES
from policies.learned.dl2.learning.history import FORMAT, read_history
from policies.learned.dl2.learning.replay_trace import FEWEST_JOBS
from policies.learned.dl2.learning.result import NOT_BETTER, PROMOTED
from policies.learned.dl2.system import ENCODER
from policies.learned.weights import weights
from policies.model import ClusterState
from policies.serving.cli.app import app
from policies.serving.client import PolicyClient
from tests.unit.policies.learned.dl2.learning.examples import outcomes
from tests.unit.policies.learned.dl2.learning.fake_training import CANDIDATE, SLEEP_S
from tests.unit.policies.learned.dl2.learning.test_service import SHIPPED, candidate
from tests.unit.policies.processes import ROOT, eventually, running, serve_command
from tests.unit.policies.states.cluster import Job, Node, cluster

pytestmark = pytest.mark.timeout(1200)  # processes that import torch and simulate, on a machine that others use too

STATE = cluster([Node(4)] * 2, [Job(gpus=1, sizes=(1, 8), training=(20.0, 0.0)) for _ in range(12)], time_s=time.time())

SLOT_S = 60.0


class Server:
    """A policy server of the test, and a client of it."""

    def __init__(self, process: subprocess.Popen[str], client: PolicyClient) -> None:
        self.process = process
        self.client = client
        self.meanwhile = 0
        """Number of decisions while a training was under way."""

    async def status(self) -> LearningStatus:
        status = (await self.client.describe(10.0)).learning
        assert status is not None
        return status

    async def decide(self, state: ClusterState = STATE) -> None:
        """Make one decision."""
        assert (await self.client.decide(state, 30.0)).allocation

    async def until(self, check: str, expected: object) -> LearningStatus:
        """Decide twenty times a second until the status has that value."""

        async def there() -> LearningStatus | None:
            await self.decide()
            status = await self.status()
            self.meanwhile += status.training
            await asyncio.sleep(0.03)
            return status if getattr(status, check) == expected else None

        return await eventually(there, within_s=900.0)

    async def learn(self, found: Iterable[Outcome]) -> None:
        found = list(found)
        assert await self.client.learn(found, 60.0) == len(found)


@asynccontextmanager
async def serving(folder: Path, *argv: str, **env: str) -> AsyncIterator[Server]:
    """Run a server at policy.sock in that folder."""
    address = f"unix://{folder / 'policy.sock'}"
    with running(*argv, env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **env}, cwd=ROOT) as process:
        async with PolicyClient(address) as client:

            async def up() -> bool:
                assert process.poll() is None, process.communicate()
                with suppress(PolicyServerError):
                    return bool(await client.describe(1.0))
                return False

            await eventually(up, within_s=300.0)
            yield Server(process, client)


def single_gpu(folder: Path) -> str:
    """Write weights that give one pair, and then prefer void: one job at a time trains, on one GPU."""
    arrays, card = SHIPPED
    last = max(name for name in arrays if name.endswith(".bias"))
    changed = {name: array * 0 for name, array in arrays.items()}
    changed[last] = changed[last].copy()
    changed[last][-1] = 10.0
    return weights.save(folder / "best", "dl2", changed, card).weights_sha256


def attempt_of(learn: Path) -> list[int]:
    """Processes whose working folder is that of the attempt."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if Path(entry / "cwd").readlink() == learn / "attempt":
                    found.append(int(entry.name))
    return found


@pytest.mark.slow
async def test_better_weights_are_promoted_worse_are_not_and_a_kill_leaves_sound_ones(tmp_path: Path) -> None:
    learn, better, worse = tmp_path / "learn", tmp_path / "better", tmp_path / "worse"
    digest, poor = candidate(better, 1.0), single_gpu(worse)
    (tmp_path / "sleep").write_text("3")
    chosen = tmp_path / "chosen"
    chosen.symlink_to(better)
    policy = f"dl2:weights={worse},learn={learn},learn_every_s=0"
    program = [sys.executable, "-m", "tests.unit.policies.learned.dl2.learning.server_program"]
    argv = [*program, policy, f"unix://{tmp_path / 'policy.sock'}"]
    env = {CANDIDATE: str(chosen), SLEEP_S: str(tmp_path / "sleep")}
    begun_s = time.time() - 1e5
    async with serving(tmp_path, *argv, **env) as server:
        # given poor weights in service, and a history that comes in over gRPC, with absurd outcomes in it
        assert (await server.status()).weights_sha256 == poor
        await server.decide()
        found = outcomes(FEWEST_JOBS + 10, begun_s)
        absurd = [
            replace(found[0], job_id="absurd", service_s=1e17),
            replace(found[0], job_id="y" * 5000),
            replace(found[0], job_id="later", finish_time_s=time.time() + 1e6),
        ]
        await server.learn([*absurd, *found])
        # when the training ends with better weights
        status = await server.until("promotions", 1)
        # then they are in service, and decisions were made while the training ran
        assert (status.last_result, status.weights_sha256) == (PROMOTED, digest)
        assert status.change is not None
        assert status.ci95 is not None
        assert status.change + status.ci95 < 0
        assert (status.history_jobs, status.outcomes_refused) == (len(found), 3)
        assert server.meanwhile > 3
        # given that the next training takes long, when the server is killed in the middle
        (tmp_path / "sleep").write_text("300")
        await server.learn(outcomes(30, begun_s, len(found)))
        await server.until("training", expected=True)
        assert (await server.status()).attempts == 1
        await eventually(_found(learn), within_s=60.0)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(30)
        # then the training ends too
        await eventually(_found(learn, none=True), within_s=30.0)
    # and after a restart, with a line that the crash has cut, the promoted weights are in service
    with (learn / "history.log").open("ab") as log:
        log.write(b"0123abcd {")
    card = weights.load(learn / "best", "dl2", system="dl2", encoder=ENCODER)[1]
    assert (card.recipe["parent"], card.results["windows"]) == (poor, float(status_windows(card.results)))
    assert card.data.startswith("this cluster's history, submitted from ")
    (tmp_path / "sleep").write_text("0")
    chosen.unlink()
    chosen.symlink_to(worse)
    (tmp_path / "policy.sock").unlink(missing_ok=True)
    async with serving(tmp_path, *argv, **env) as server:
        assert (await server.status()).weights_sha256 == digest
        # when the next training ends with worse weights
        status = await server.until("attempts", 2)
        # then they are not promoted
        assert (status.last_result, status.weights_sha256, status.promotions) == (NOT_BETTER, digest, 1)
        assert "not below zero" in status.last_reason
        assert read_history(learn / "history.log")[1] == 0
        # and an operator's command brings the first weights back, without a restart
        done = CliRunner().invoke(app, ["promote", "dl2", "--shipped", "--over", str(learn)])
        assert done.exit_code == 0, done.output
        await server.until("weights_sha256", poor)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    assert (learn / "history.log").read_bytes().startswith(FORMAT)


def status_windows(results: object) -> float:
    assert isinstance(results, dict)
    return float(results["windows"])


def _found(learn: Path, *, none: bool = False):  # type: ignore[no-untyped-def] # a check for `eventually`
    async def check() -> bool:
        await asyncio.sleep(0.1)
        return bool(attempt_of(learn)) != none

    return check


async def learn_from_rewards(server: Server, begun_s: float) -> LearningStatus:
    """Decide about jobs that make progress, a slot after the other, until a copy of the weights has learned a policy from it."""
    status = await server.status()
    for number in range(1, 2000):
        share = min(number / 500, 0.99)
        jobs = [
            Job(gpus=1, sizes=(1, 8), training=(20.0, share), occupied={row // 4: 1} if row < 8 else None)
            for row in range(12)
        ]
        await server.decide(cluster([Node(4)] * 2, jobs, sequence=number, time_s=begun_s + SLOT_S * number))
        await asyncio.sleep(0.08)  # the server keeps 16 states for its thread, which comes each second
        if number % 20 == 0:
            status = await server.status()
            if status.feedback_updates > CRITIC_UPDATES + 5:
                break
    return status


async def test_a_copy_of_the_weights_learns_from_rewards_of_live_decisions(tmp_path: Path) -> None:
    learn = tmp_path / "learn"
    policy = f"dl2:learn={learn},round_s={SLOT_S}"
    async with serving(tmp_path, *serve_command(policy, f"unix://{tmp_path / 'policy.sock'}")) as server:
        before = (await server.status()).weights_sha256
        status = await learn_from_rewards(server, time.time() - 1e5)
        assert status.feedback_updates > CRITIC_UPDATES
        assert status.feedback_samples >= 32
        assert (status.weights_sha256, status.attempts) == (before, 0)
        # a job without progress and estimate makes rewards unknown
        unknown = cluster([Node(4)] * 2, [Job(gpus=1, sizes=(1, 8), occupied={0: 1})] * 2, time_s=time.time())
        await server.decide(unknown)
        await server.decide(cluster([Node(4)] * 2, [Job(gpus=1, sizes=(1, 8))], time_s=time.time() + SLOT_S))

        async def left_out() -> bool:
            await asyncio.sleep(0.1)
            return (await server.status()).feedback_left_out > 0

        await eventually(left_out, within_s=60.0)


@pytest.mark.slow
async def test_the_copy_is_compared_and_promoted_only_if_it_is_better(tmp_path: Path) -> None:
    learn = tmp_path / "learn"
    policy = f"dl2:learn={learn},learn_every_s=0,round_s={SLOT_S}"
    async with serving(tmp_path, *serve_command(policy, f"unix://{tmp_path / 'policy.sock'}")) as server:
        before = (await server.status()).weights_sha256
        await learn_from_rewards(server, time.time() - 1e5)
        await server.learn(outcomes(FEWEST_JOBS + 10, time.time() - 1e5))
        status = await server.until("attempts", 1)
        # its weights were compared as they are, without a training on replays
        assert status.change is not None, status
        assert not (learn / "attempt" / "training" / "events").exists()
        card = weights.load(learn / "attempt" / "training" / "best", "dl2", system="dl2", encoder=ENCODER)[1]
        updates = card.recipe[FEEDBACK_UPDATES]
        assert isinstance(updates, int) and updates > 0
        if status.last_result == PROMOTED:
            assert status.weights_sha256 == card.weights_sha256
        else:
            assert status.last_reason.startswith("learned from the cluster's rewards: ")
            assert (status.last_result, status.weights_sha256) == (NOT_BETTER, before)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_real_training_runs_beside_decisions(tmp_path: Path) -> None:
    learn = tmp_path / "learn"
    policy = f"dl2:learn={learn},learn_every_s=0,learn_rounds=2"
    async with serving(tmp_path, *serve_command(policy, f"unix://{tmp_path / 'policy.sock'}")) as server:
        await server.decide()
        await server.learn(outcomes(FEWEST_JOBS + 10, time.time() - 1e5))
        status = await server.until("attempts", 1)
        # whatever it has found, it was compared, and decisions were made meanwhile
        assert status.change is not None, status
        assert status.last_result in {PROMOTED, NOT_BETTER}
        assert server.meanwhile > 3
        assert (learn / "attempt" / "training" / "best" / "dl2.json").exists()
