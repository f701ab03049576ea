"""The contract of SlurmClient on a real Slurm: by command line, and by pyslurm where it is there."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from controller.base.config import ControllerSettings
from controller.slurm.client import Pin, SlurmClient
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.scontrol import Answers
from controller.slurm.select import open_client
from controller.slurm.updates.changes import Command, pin_step
from controller.slurm.updates.verbs import Verbs
from slurm.errors import CommandError
from slurm.minicluster.cluster import MiniCluster
from slurm.prerequisites import missing
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.scheduling.slurm_bench import MiniClusterBench, add_users, contract_spec
from tests.contract.bench import Order
from tests.contract.slurm_contract import SlurmContract, held_gpus, job_of
from tests.contract.steps import requeued, running, seen, submit_running


@pytest.fixture(scope="module")
def contract_cluster(cluster_user: str) -> Iterator[MiniCluster]:
    skip_unless_possible()
    with MiniCluster(contract_spec(unique_name(), accounting=not missing(accounting=True))) as cluster:
        add_users(cluster, cluster_user)
        yield cluster


def _settings(cluster: MiniCluster, **more: str) -> ControllerSettings:
    return ControllerSettings.model_validate(
        {"partitions": ("dl",), "slurm_conf": cluster.slurm_conf, "slurm_timeout_s": 60.0} | more
    )


async def marked(bench: MiniClusterBench, job_id: str) -> SlurmJob:
    """Put our mark on a held job, and return it."""
    job = job_of(await bench.client.snapshot(), job_id)
    assert await bench.client.mark([job.key], HOLD_MARK) == {}
    return job


class RealSlurmContract(SlurmContract):
    """The contract, and the cases that only a real Slurm has, for the client that a subclass names in `CLIENT`."""

    CLIENT: ClassVar[str]

    @pytest.fixture
    async def opened(self, contract_cluster: MiniCluster) -> AsyncIterator[Callable[[], Awaitable[SlurmClient]]]:
        """Open one client of that kind at each call; all are closed after the test."""
        clients: list[SlurmClient] = []

        async def open_one() -> SlurmClient:
            clients.append(await open_client(_settings(contract_cluster, slurm_client=self.CLIENT)))
            return clients[-1]

        yield open_one
        for client in clients:
            await client.close()

    @pytest.fixture
    async def bench(
        self, contract_cluster: MiniCluster, cluster_user: str, opened: Callable[[], Awaitable[SlurmClient]]
    ) -> AsyncIterator[MiniClusterBench]:
        bench = MiniClusterBench(contract_cluster, await opened(), cluster_user)
        yield bench
        await bench.clear()

    @pytest.mark.parametrize(
        ("options", "nodes", "gpus"),
        [
            (["--gres=gpu:2", "-N1-3"], ("n2", "n4"), 2),
            (["--gpus=8", "-n2", "-c4"], ("n1", "n2", "n3", "n4"), 2),
            (["--gpus=12", "-N2", "-n4", "-c4"], ("n3", "n4"), 6),
            (["--gpus=8", "--ntasks-per-node=2"], ("n3", "n4"), 4),
            (["--gres=gpu:2", "-N2", "--ntasks-per-node=3"], ("n1", "n4"), 2),
            (["--gpus-per-task=2", "-n4"], ("n2", "n3"), 4),
            (["--gpus-per-task=2", "-n4"], ("n2",), 8),
            (["--gpus-per-task=1", "-n4", "-c2", "-N2-4"], ("n2", "n3"), 2),
            (["--gpus=8", "--cpus-per-gpu=2"], ("n3", "n4"), 4),
            (["--gpus=8", "--mem-per-gpu=1G"], ("n3", "n4"), 4),
            (["--gpus=8", "-N2", "-w", "n2", "-x", "n4"], ("n2", "n3"), 4),
        ],
    )
    async def test_requests_of_every_form_are_pinned_and_given_back(
        self, bench: MiniClusterBench, options: list[str], nodes: tuple[str, ...], gpus: int
    ) -> None:
        job_id = await bench.sbatch("--hold", *options)
        job = await marked(bench, job_id)
        assert await bench.client.pin([Pin(job.key, nodes, gpus, job.request)]) == {}
        assert await bench.client.unpin({job.key: job.request}) == {}
        assert (await seen(bench, job.key)).request == job.request
        assert await bench.client.pin([Pin(job.key, nodes, gpus, job.request)]) == {}
        assert await bench.client.release([job.key]) == {}
        assert held_gpus(await running(bench, job.key)) == dict.fromkeys(nodes, gpus)

    async def test_what_was_given_back_still_runs(self, bench: MiniClusterBench) -> None:
        job_id = await bench.sbatch("--hold", "--gpus=12", "-n2", "-c2")
        job = await marked(bench, job_id)
        for nodes, gpus in ((("n2", "n3", "n4"), 4), (("n1", "n2"), 6)):
            assert await bench.client.pin([Pin(job.key, nodes, gpus, job.request)]) == {}
        assert await bench.client.unpin({job.key: job.request}) == {}
        assert await bench.client.release([job.key]) == {}
        assert sum(held_gpus(await running(bench, job.key)).values()) == 12

    async def test_a_pin_that_reaches_a_running_job_takes_no_node_from_it(self, bench: MiniClusterBench) -> None:
        job_id = await bench.sbatch("--hold", "--gres=gpu:1", "-N1-2", "--time=5")
        job = await marked(bench, job_id)
        client = bench.client
        assert isinstance(client, Verbs)
        await client.snapshot()
        found = client._memory.get(job.key)
        assert found is not None
        assert await client.pin([Pin(job.key, ("n1", "n2"), 1, job.request)]) == {}
        assert await client.release([job.key]) == {}
        before = held_gpus(await running(bench, job.key))
        assert set(before) == {"n1", "n2"}
        command = pin_step(found, Pin(job.key, ("n1",), 1, job.request), 0.0)
        assert isinstance(command, Command)
        assert "no longer pending" in await client.complaint(command)
        assert held_gpus(await seen(bench, job.key)) == before

    async def test_a_job_that_one_process_releases_while_another_holds_it_keeps_its_mark(
        self, bench: MiniClusterBench, opened: Callable[[], Awaitable[SlurmClient]]
    ) -> None:
        # as the watchdog and a controller that has just been started
        releasing, holding = await opened(), await opened()
        keys = [await bench.submit(Order(gres=1, begin_in_s=3600)) for _ in range(3)]
        for turn in range(10):
            assert await bench.client.hold(keys) == {}
            assert await releasing.release(keys) == {}
            await holding.snapshot()
            async with asyncio.TaskGroup() as both:
                both.create_task(releasing.unmark(keys, HOLD_MARK, unless_held=True))
                await asyncio.sleep(turn * 0.005)
                held = both.create_task(holding.hold(keys))
            assert held.result() == {}
            found = (await bench.client.read(keys)).values()
            assert {(job.held, job.reason, job.admin_comment) for job in found} == {(True, "JobHeldUser", HOLD_MARK)}

    async def test_users_cannot_speak_for_slurm(self, bench: MiniClusterBench) -> None:
        victim = await bench.sbatch("--hold", "--gres=gpu:1")
        line = await bench.show(victim)
        forged = line.replace("JobState=PENDING", "JobState=COMPLETED")
        evil = await bench.sbatch(
            "--hold", "--gres=gpu:2", f"--job-name=a\nJobId={victim} JobName=b", f"--comment=x AdminComment={HOLD_MARK}",
            "--output=/dev/null", f"--chdir=/tmp/x StdOut=/x Power= \n{forged}\nJobId=99999 x",
        )  # fmt: skip
        snapshot = await bench.client.snapshot()
        ids = [job.key.job_id for job in snapshot.jobs]
        assert (ids.count(victim), ids.count(evil), ids.count("99999")) == (1, 1, 0)
        assert job_of(snapshot, victim).phase is Phase.PENDING
        job = job_of(snapshot, evil)
        assert (job.name, job.marks, job.request.gpus_per_node) == (f"a\nJobId={victim} JobName=b", frozenset(), 2)
        assert await bench.client.mark([job_of(snapshot, victim).key], HOLD_MARK) == {}

    async def test_no_option_of_a_user_claims_nodes_or_another_owner(self, bench: MiniClusterBench) -> None:
        # given options that slurmctld does not check, and prints among its own values
        honest = await bench.sbatch("--gres=gpu:1")
        nodes = "x Nodes=n3 CPU_IDs=0-31 Mem=1 GRES=gpu:8 OverSubscribe=NO"
        claims = await bench.sbatch("--gres=gpu:1", f"--cluster-constraint={nodes}")
        label = "x UserId=root(0) GroupId=root(0) MCS_label=y"
        poses = await bench.sbatch("--gres=gpu:1", f"--mcs-label={label}")
        snapshot = await bench.client.snapshot()
        assert (job_of(snapshot, poses).user, job_of(snapshot, poses).user_id) == ("", None)
        assert job_of(snapshot, honest).user_id not in {None, 0}
        for job_id in (honest, claims, poses):
            job = await running(bench, job_of(snapshot, job_id).key)
            assert sum(share.gpus for share in job.allocated) == 1
            assert not job.exclusive

    async def test_texts_full_of_line_breaks_hide_no_job(self, bench: MiniClusterBench) -> None:
        before = await bench.sbatch("--hold", "--gres=gpu:1")
        name, comment = "a" + "\nx" * 511, "b" + "\nJobId=1000000 y" * 60
        evil = await bench.sbatch("--hold", "--gres=gpu:2", f"--job-name={name}", f"--comment={comment}")
        after = await bench.sbatch("--hold", "--gres=gpu:1")
        snapshot = await bench.client.snapshot()
        assert {before, evil, after} <= {job.key.job_id for job in snapshot.jobs}
        assert snapshot.unread == frozenset()
        assert (job_of(snapshot, evil).name, job_of(snapshot, evil).comment) == (name, comment)
        # and Slurm takes no more than 1,024 bytes, which bounds the lines of a name
        for option in ("--job-name", "--comment"):
            await bench.sbatch("--hold", f"{option}={'z' * 1024}")
            with pytest.raises(CommandError) as refused:
                await bench.sbatch("--hold", f"{option}={'z' * 1025}")
            assert "Pathname of a file, directory or other parameter too long" in str(refused.value)


class TestCommandLine(RealSlurmContract):
    CLIENT = "command-line"

    async def test_a_stop_that_slurm_shows_late_does_not_count_as_the_end_of_the_job(
        self, bench: MiniClusterBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a busy slurmctld the job may be back in the queue at the first reading after its stop."""
        client = bench.client
        assert isinstance(client, CommandLineClient)
        query = client._scontrol.query

        async def late(queries: Sequence[str], *, first: Sequence[Sequence[str]] = ()) -> Answers:
            if not any(each.startswith("requeuehold") for each in queries):
                return await query(queries, first=first)
            answers = await query([*queries[:-1], *[queries[-1]] * 100, queries[-1]], first=first)
            return replace(answers, sections=(*answers.sections[: len(queries) - 1], answers.sections[-1]))

        monkeypatch.setattr(client._scontrol, "query", late)
        # However long so many readings take here, they count as close to the stop.
        monkeypatch.setattr(client, "_monotonic", lambda: 0.0)
        key, before = await submit_running(bench, Order(gres=1))
        assert await client.requeue_hold([key], paused=[key]) == {}
        again = await requeued(bench, before)
        assert (again.held, HOLD_MARK in again.marks) == (True, True)


class PySlurm(RealSlurmContract):
    CLIENT = "pyslurm"


if importlib.util.find_spec("pyslurm") is not None:

    class TestPySlurm(PySlurm):
        pass

else:

    def test_pyslurm_keeps_the_contract() -> None:
        pytest.skip("pyslurm is not installed")
