"""The contract's bench over a real Slurm: a mini-cluster, its users and its operator."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.base.errors import SlurmUnavailableError
from controller.slurm.client import SlurmClient
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey
from slurm.minicluster.cluster import ClusterSpec, MiniCluster, PartitionSpec
from slurm.minicluster.spec import ACCOUNT
from tests.contract.bench import FEATURES, GPUS_PER_NODE, MATLAB_LICENSES, SHORT_MAX_TIME_S, Condition, Order

_POLL_S = 0.1
_NODES = 4
POOR_USER = "bin"
"""User who may hold no GPU, where the bench has limits on GPUs."""


def contract_spec(name: str, *, accounting: bool) -> ClusterSpec:
    """Return the cluster for the contract. Without accounting there are no limits on GPUs."""
    names = tuple(f"n{number}" for number in range(1, _NODES + 1))
    return ClusterSpec(
        name=name,
        nodes=_NODES,
        gpus=GPUS_PER_NODE,
        features={node: (feature,) for node, feature in zip(names, FEATURES, strict=True)},
        partitions=(PartitionSpec("dl"), PartitionSpec("short", options=f"MaxTime={SHORT_MAX_TIME_S // 60}")),
        accounting=accounting,
        extra_conf=(f"Licenses=matlab:{MATLAB_LICENSES}", "KillWait=3"),
    )


def add_users(cluster: MiniCluster, user: str) -> None:
    """Add users on a cluster with accounting, where only root may submit at first."""
    if cluster.spec.accounting:
        cluster.sacctmgr("add", "user", f"{user},{POOR_USER}", f"Account={ACCOUNT}")
        cluster.sacctmgr("modify", "user", POOR_USER, "set", "GrpTRES=gres/gpu=0")


class MiniClusterBench:
    """A bench with a real cluster and a given client."""

    def __init__(self, cluster: MiniCluster, client: SlurmClient, user: str) -> None:
        self._cluster = cluster
        self._client = client
        self._user = user

    @property
    def client(self) -> SlurmClient:
        return self._client

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._cluster.node_names

    @property
    def short_partition(self) -> str:
        return "short"

    @property
    def offers(self) -> frozenset[str]:
        limits = {"gpu-limit"} if self._cluster.spec.accounting else set()
        return frozenset({"licenses", "reservations", "het", "interactive"} | limits)

    # ---- users

    async def submit(self, order: Order, user: str | None = None) -> JobKey:
        words = ("sbatch", *_options(order))
        job_id = (await self._run(*words, user=user or self._user, stdin=_script(order))).strip()
        if order.admin_comment:
            await self._run("scontrol", "update", f"JobId={job_id}", f"AdminComment={order.admin_comment}")
        submitted = await self._run("squeue", "-h", "-t", "all", "-j", job_id, "-O", "SubmitTime:30")
        submit_time_s = int(submitted.split()[0])
        return JobKey(f"{job_id}_{order.array[0]}" if order.array else job_id, submit_time_s)

    async def sbatch(self, *options: str) -> str:
        """Submit a job with options that Order does not know; its id."""
        words = ("sbatch", "--parsable", "--output=/dev/null", *options)
        return (await self._run(*words, user=self._user, stdin=_script(Order()))).strip()

    async def show(self, job_id: str) -> str:
        """Return the line of scontrol about a job."""
        return (await self._run("scontrol", "-o", "show", "job", job_id)).strip()

    async def submit_het(self) -> str:
        words = ("sbatch", "--parsable", "-o", "/dev/null", "-H", "--gres=gpu:1", ":", "--gres=gpu:1")
        return (await self._run(*words, user=self._user, stdin=_script(Order()))).strip()

    async def submit_interactive(self) -> str:
        done = await asyncio.to_thread(
            self._cluster.run, "salloc", "--no-shell", "--gres=gpu:1", "-t", "5", user=self._user
        )
        return done.stderr.split("allocation", 1)[1].split()[0]

    async def submit_over_limit(self) -> JobKey:
        return await self.submit(Order(gres=1, hold=True), user=POOR_USER)

    async def user_hold(self, key: JobKey) -> None:
        await self._run("scontrol", "hold", key.job_id, user=self._user)

    async def user_release(self, key: JobKey) -> None:
        await self._run("scontrol", "release", key.job_id, user=self._user)

    async def operator_requeue(self, key: JobKey) -> None:
        await self._run("scontrol", "requeue", key.job_id)

    async def cancel(self, key: JobKey) -> None:
        await self._run("scancel", key.job_id)

    # ---- operators

    async def operator_hold(self, key: JobKey) -> None:
        await self._run("scontrol", "hold", key.job_id)

    async def drain(self, node: str) -> None:
        await self._run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test of draining")

    async def down(self, node: str) -> None:
        await self._run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test of going down")

    async def resume(self, node: str) -> None:
        deadline = time.monotonic() + 60
        while True:
            await self._run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
            if self._cluster.node_states().get(node) in {"idle", "mixed", "allocated"}:
                return
            assert time.monotonic() < deadline, self._cluster.node_states()
            await asyncio.sleep(_POLL_S)

    async def reserve(self, name: str, nodes: tuple[str, ...], duration_s: int) -> None:
        await self._run(
            "scontrol", "create", "reservation", f"ReservationName={name}", f"Nodes={','.join(nodes)}", "StartTime=now",
            f"Duration={max(duration_s // 60, 1)}", f"Users={self._user}",
        )  # fmt: skip

    async def unreserve(self, name: str) -> None:
        await self._run("scontrol", "delete", f"ReservationName={name}")

    # ---- time

    async def now(self) -> float:
        return time.time()

    async def wait(self, seconds: float) -> None:
        """Counted from when the scripts of all running jobs have set their traps: Slurm says before that that they run."""
        deadline = time.monotonic() + 60
        while not await self._scripts_have_begun():
            assert time.monotonic() < deadline, "a job runs, but its script does not"
            await asyncio.sleep(_POLL_S)
        await asyncio.sleep(seconds)

    async def _scripts_have_begun(self) -> bool:
        running = (await self._run("squeue", "-h", "-t", "RUNNING", "-o", "%A")).split()
        return all((self._cluster.files.work / f"begun.{job_id}").exists() for job_id in running)

    async def wait_until(self, condition: Condition, timeout_s: float = 60.0) -> SlurmSnapshot:
        deadline = time.monotonic() + timeout_s
        while not condition(snapshot := await self._snapshot(deadline)):
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {snapshot.jobs}"
            await asyncio.sleep(_POLL_S)
        return snapshot

    async def _snapshot(self, deadline: float) -> SlurmSnapshot:
        """slurmctld may still be catching up after it was away."""
        while True:
            try:
                return await self._client.snapshot()
            except SlurmUnavailableError:
                if time.monotonic() > deadline:
                    raise

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Stop slurmctld and start it again; a kill would lose the changes of the last second."""
        self._cluster.pause("slurmctld")
        try:
            yield
        finally:
            self._cluster.resume("slurmctld")

    # ---- between tests

    async def clear(self) -> None:
        """No jobs, no reservations, every node idle."""
        for state in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"):
            await self._run("scancel", f"--state={state}", check=False)
        for line in (await self._run("scontrol", "-o", "show", "reservation")).splitlines():
            if line.startswith("ReservationName="):
                await self.unreserve(line.split()[0].removeprefix("ReservationName="))
        for node in self.nodes:
            if self._cluster.node_states().get(node) not in {"idle", "mixed", "allocated", "completing"}:
                await self.resume(node)
        await asyncio.to_thread(self._cluster.wait_idle, 60.0)

    async def _run(self, *words: str, user: str | None = None, stdin: str = "", check: bool = True) -> str:
        done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
            self._cluster.run, *words, user=user, stdin=stdin, check=check, env={"SLURM_TIME_FORMAT": "%s"}
        )
        return done.stdout


def _options(order: Order) -> list[str]:
    """sbatch's options."""
    nodes = order.nodes if not isinstance(order.nodes, tuple) else f"{order.nodes[0]}-{order.nodes[1]}"
    array = ",".join(map(str, order.array)) + (f"%{order.throttle}" if order.throttle else "")
    valued = {
        "--gres": f"gpu:{order.gres}" if order.gres else None,
        "--gpus-per-node": order.gpus_per_node,
        "--gpus": order.gpus,
        "--gpus-per-task": order.gpus_per_task,
        "--nodes": nodes,
        "--ntasks": order.ntasks,
        "--ntasks-per-node": order.ntasks_per_node,
        "--cpus-per-task": order.cpus_per_task,
        "--mem": f"{order.memory_mib}M" if order.memory_mib else None,
        "--nodelist": ",".join(order.nodelist),
        "--exclude": ",".join(order.exclude),
        "--constraint": order.constraint,
        "--licenses": order.licenses,
        "--array": array,
        "--dependency": order.dependency,
        "--begin": None if order.begin_in_s is None else f"now+{order.begin_in_s:.0f}",
        "--time": None if order.time_limit_s is None else order.time_limit_s // 60,
        "--partition": order.partition,
        "--reservation": order.reservation,
        "--job-name": order.name,
        "--comment": order.comment,
    }
    flags = {"--exclusive": order.exclusive, "--hold": order.hold, "--no-requeue": not order.requeue}
    return [
        "--parsable",
        "--output=/dev/null",
        *(f"{option}={value}" for option, value in valued.items() if value not in {None, ""}),
        *(option for option, given in flags.items() if given),
    ]


def _script(order: Order) -> str:
    """Sleeps in short naps, because a signal to all processes of the job ends a nap too."""
    traps = "".join(f"trap '' {name}\n" for name in sorted(order.traps))
    return (
        f"#!/bin/bash\n{traps}: >begun.$SLURM_JOB_ID\n"
        f"end=$((SECONDS + {max(round(order.duration_s), 1)}))\n"
        "while [ $SECONDS -lt $end ]; do sleep 0.2; done\n"
        f"exit {order.exit_code}\n"
    )
