"""A module shaped like pyslurm 25.11.2, with a small slurmctld behind it. Names and quirks are those of the real one on 25.11.7."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.unit.controller.slurm.scontrol.text import SUBMIT_S

_DESCRIPTION = frozenset(
    {"priority", "admin_comment", "required_nodes", "begin_time", "ntasks", "gpus", "gres_per_node"}
)
_RELEASED = 4_294_901_000


INVALID_JOB_ID = 2017
"""ESLURM_INVALID_JOB_ID."""


class RPCError(Exception):
    """pyslurm.RPCError: `errno` is Slurm's number; -1 with a message of pyslurm's own."""

    def __init__(self, message: str, errno: int = -1) -> None:
        super().__init__(message)
        self.errno = errno


@dataclass
class Gres:
    """Both TrackableResource and GPU."""

    count: int


@dataclass
class Tres:
    """TrackableResources: names like "gpu" and "gpu:a100"."""

    gres: dict[str, Gres]


def tres(**counts: int) -> Tres:
    """TrackableResources; gpu_a100=4 stands for "gpu:a100"."""
    return Tres({name.replace("_", ":"): Gres(count) for name, count in counts.items()})


@dataclass
class JobRow:
    """A job as slurmctld knows it, in pyslurm's attributes. pyslurm returns None both for zero and for a missing value."""

    id: int = 7
    name: str | None = "train"
    user_name: str = "ann"
    partition: str = "dl"
    state: str = "PENDING"
    state_reason: str = "JobHeldUser"
    priority: int = 0
    admin_comment: str | None = None
    comment: str | None = None
    submit_time: int = SUBMIT_S
    eligible_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    time_limit: int | None = None
    time_limit_min: int | None = None
    deadline: int | None = None
    required_switches: int | None = None
    num_nodes: int | None = 1
    max_nodes: int | None = None
    ntasks: int = 1
    ntasks_per_node: int | None = None
    cpus: int = 1
    memory_per_cpu: int | None = 1000
    memory_per_node: int | None = None
    gres_per_node: dict[str, int] = field(default_factory=lambda: {"gres/gpu": 2})
    tres_per_job: Tres | None = None
    tres_per_task: Tres | None = None
    requested_tres: Tres | None = None
    allocated_tres: Tres | None = None
    required_nodes: str | None = None
    excluded_nodes: str | None = None
    allocated_nodes: str | None = None
    layout: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_batch_job: bool = True
    is_requeueable: bool = True
    requeue_count: int = 0
    constraints: list[str] = field(default_factory=list)
    reservation: str | None = None
    account: str | None = None
    qos: str | None = None
    dependencies: dict[str, Any] | None = None
    resource_sharing: str = "OK"
    licenses: list[str] = field(default_factory=list)
    array_id: int | None = None
    array_task_id: int | None = None
    array_tasks_waiting: str | None = None
    heterogeneous_id: int | None = None
    sockets_per_node: int | None = None
    mem_per_tres: str | None = None
    """Slurm's own text; not an attribute of pyslurm."""

    @property
    def memory_per_gpu(self) -> int | None:
        """Return the memory for each GPU, as pyslurm reads it from Slurm's text: only in the form of older releases."""
        return None if self.mem_per_tres is None else int(self.mem_per_tres.split(":")[2])

    def get_resource_layout_per_node(self) -> dict[str, dict[str, Any]]:
        """Return the resources that a running job holds on each node."""
        return self.layout


@dataclass
class NodeRow:
    """pyslurm.Node."""

    name: str = "n1"
    state: str = "IDLE"
    configured_gres: dict[str, int] = field(default_factory=lambda: {"gpu:a100": 8})
    effective_cpus: int = 62
    total_cpus: int = 64
    slurmd_start_time: int | None = 1_700_000_000
    real_memory: int = 256_000
    memory_reserved_for_system: int | None = 6000
    active_features: list[str] = field(default_factory=lambda: ["fast"])
    partitions: list[str] = field(default_factory=lambda: ["dl"])
    reason: str | None = None


class FakePySlurm:
    """The module. `rows` are the jobs that its slurmctld has."""

    RPCError = RPCError

    def __init__(self, *rows: JobRow) -> None:
        self.rows = {row.id: row for row in rows}
        self.nodes = [NodeRow("n1"), NodeRow("n2", state="IDLE+DRAIN", reason="disk")]
        self.calls: list[str] = []
        self.refusal = ""
        module = self

        class JobSubmitDescription:
            def __init__(self, **attributes: object) -> None:
                assert set(attributes) <= _DESCRIPTION, attributes
                # Texts that are empty become NULL, which changes nothing.
                self.attributes = {key: value for key, value in attributes.items() if value is not None and value != ""}

        class Job:
            def __init__(self, job_id: int) -> None:
                self.id = job_id

            @staticmethod
            def load(job_id: int) -> JobRow:
                return module.find(job_id)

            def modify(self, changes: JobSubmitDescription) -> None:
                module.modify(self.id, changes.attributes)

            def release(self) -> None:
                module.modify(self.id, {"priority": _RELEASED})

            def requeue(self, hold: bool = False) -> None:
                module.requeue(self.id, hold=hold)

        self.Job = Job
        self.JobSubmitDescription = JobSubmitDescription
        self.Jobs = self._loader(lambda: dict(self.rows))
        self.Nodes = self._loader(lambda: {node.name: node for node in self.nodes})
        self.Partitions = self._loader(
            lambda: {"dl": SimpleNamespace(name="dl", nodes="n[1-2]", state="UP", max_time="UNLIMITED")}
        )
        self.Reservations = self._loader(
            lambda: {"r": SimpleNamespace(name="r", nodes="n2", start_time=10, end_time=20)}
        )

    def _loader(self, load: Any) -> Any:
        return SimpleNamespace(load=load)

    def find(self, job_id: int) -> JobRow:
        if job_id not in self.rows:
            raise RPCError("Invalid job id specified", INVALID_JOB_ID)
        return self.rows[job_id]

    def modify(self, job_id: int, changes: dict[str, Any]) -> None:
        self.calls.append(f"modify {job_id} {changes}")
        row = self.find(job_id)
        if self.refusal:
            raise RPCError(self.refusal)
        for key, value in changes.items():
            match key:
                case "required_nodes":
                    row.required_nodes = ",".join(value)
                case "begin_time":
                    row.eligible_time = value
                case "priority" if value == 0:
                    row.priority, row.state_reason = 0, "JobHeldAdmin"
                case _:
                    setattr(row, key, value)

    def requeue(self, job_id: int, *, hold: bool) -> None:
        assert hold
        self.calls.append(f"requeue {job_id}")
        row = self.find(job_id)
        if not row.is_requeueable:
            raise RPCError("Requested operation is presently disabled")
        row.state, row.priority, row.requeue_count = "COMPLETING", 0, row.requeue_count + 1
