"""The state of controller, policy, agents and nodes. Times are seconds since the Unix epoch; 0 = never."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client.answers.fields import flag, many, maybe_real, real, sub, text, texts, u32, u64
from headway_client.answers.message import Message


@dataclass(frozen=True)
class PolicyLearning(Message):
    """State of a policy that goes on training while it serves."""

    enabled: bool = flag(1)
    """False = the policy does not learn."""
    training: bool = flag(2)
    """True = an attempt to make better weights is under way."""
    weights_sha256: str = text(3)
    """SHA-256 of the weights in service, in hexadecimal digits."""
    weights_since_s: float = real(4)
    """Time at which they were promoted; 0 = the weights that the policy began with."""
    history_jobs: int = u64(5)
    history_bytes: int = u64(6)
    outcomes_refused: int = u64(7)
    """Outcomes that were not recorded since the start of the policy server."""
    attempts: int = u64(8)
    promotions: int = u64(9)
    last_attempt_s: float = real(10)
    last_result: str = text(11)
    """promoted, not better, failed or stopped; empty = there was no attempt."""
    last_reason: str = text(12)
    """Why the weights of the last attempt were not promoted."""
    change: float | None = maybe_real(13)
    """Relative change of the average JCT in the last comparison; None = nothing was compared."""
    ci95: float | None = maybe_real(14)
    """Half of its 95 % interval."""
    problem: str = text(15)
    """Why nothing is recorded or learned at present; empty = there is no problem."""
    feedback_samples: int = u64(16)
    """Samples of decisions on this cluster, with their rewards."""
    feedback_updates: int = u64(17)
    """Gradient steps from them since the start of the policy server, on a copy of the weights in service."""
    feedback_left_out: int = u64(18)
    """Decisions since then without samples, because their reward is not known."""


@dataclass(frozen=True)
class PolicyInfo(Message):
    """The policy that decides, and how the controller reaches it."""

    name: str = text(1)
    """Empty = no policy server has answered yet."""
    version: str = text(2)
    source: str = text(3)
    """Where the policy comes from: a package, a paper, a file of weights."""
    address: str = text(4)
    """Address of the policy server, such as unix:///run/headway/policy.sock."""
    serving: bool = flag(5)
    """False = the fallback decides at the moment."""
    fallback: str = text(6)
    """Name of the policy that decides while the policy server does not answer."""
    last_error: str = text(7)
    """The last failure; empty = none."""
    learning: PolicyLearning = sub(8, PolicyLearning)


@dataclass(frozen=True)
class NodeUse(Message):
    """One node of the managed partitions."""

    name: str = text(1)
    gpus: int = u32(2)
    """Number of GPUs."""
    gpus_used: int = u32(3)
    """Number of GPUs that jobs occupy."""
    available: bool = flag(4)
    """True = Slurm would start jobs there."""
    state: str = text(5)
    """Slurm's state words."""
    partitions: tuple[str, ...] = texts(6)
    """Managed partitions that have it."""
    rack: str = text(7)
    """Its leaf switch; empty = Slurm knows no switches."""
    reason: str = text(8)
    """Slurm's reason for its state; empty = none."""


@dataclass(frozen=True)
class SilentNode(Message):
    """A node without a connected agent."""

    name: str = text(1)
    since_s: float = real(2)
    """Time of the last contact, seconds since the Unix epoch; 0 = none since the controller started, or for a day."""


@dataclass(frozen=True)
class SkewedNode(Message):
    """A node whose clock differs from the controller's."""

    name: str = text(1)
    behind_s: float = real(2)
    """Seconds by which its clock is behind."""


@dataclass(frozen=True)
class AgentsStatus(Message):
    """The agents of the nodes."""

    served: bool = flag(1)
    """False = this controller serves no agents; all other fields are empty."""
    connected: int = u32(2)
    nodes: int = u32(3)
    """Number of Slurm's nodes in managed partitions."""
    silent: tuple[SilentNode, ...] = many(4, SilentNode)
    """Nodes without a connected agent, by name."""
    skewed: tuple[SkewedNode, ...] = many(5, SkewedNode)
    """Nodes whose clock differs by more than a second."""
    reports: int = u64(6)
    """Reports stored since the controller started."""
    dropped: int = u64(7)
    """Reports that agents had to drop."""
    refused: int = u64(8)
    """Streams of agents that were refused."""
    troubles: tuple[str, ...] = texts(9)
    """A sentence for each background task of an agent that failed within the last hour."""


@dataclass(frozen=True)
class MoveAdvice(Message):
    """Advice to move a running job to other nodes."""

    job_id: str = text(1)
    why: str = text(2)
    """A sentence, with the numbers."""
    nodes: tuple[str, ...] = texts(3)
    """Nodes with room for it now."""
    avoid: tuple[str, ...] = texts(4)
    """Nodes that it should avoid."""
    since_s: float = real(5)
    """Time of the first such advice, seconds since the Unix epoch."""


@dataclass(frozen=True)
class SlurmCalls(Message):
    """Calls of one verb to Slurm."""

    verb: str = text(1)
    """snapshot, hold, pin, release, ..."""
    calls: int = u64(2)
    mean_s: float = real(3)
    """Mean time until the answer, seconds."""
    failed: int = u64(4)
    """Calls without an answer, or with one that was not understood; and jobs for which Slurm refused a change."""


@dataclass(frozen=True)
class LeftOut(Message):
    """Unexpected errors of one part of Headway, each of which left out one job, node or row, or a part of an answer."""

    part: str = text(1)
    """starts, the queue, roles of jobs, /metrics, ..."""
    errors: int = u64(2)


@dataclass(frozen=True)
class Status(Message):
    """The state of the controller, its policy, the queue and the nodes."""

    version: str = text(1)
    """Version of Headway."""
    uptime_s: float = real(2)
    """Seconds since the controller started."""
    slurm_version: str = text(3)
    slurm_client: str = text(4)
    """How the controller reaches Slurm: command-line, pyslurm or embedded."""
    snapshot_time_s: float = real(5)
    """Time of the last good snapshot, seconds since the Unix epoch; 0 = none yet."""
    snapshot_read_s: float = real(6)
    """Duration of the read, seconds."""
    policy: PolicyInfo = sub(7, PolicyInfo)
    jobs_waiting: int = u32(8)
    jobs_starting: int = u32(9)
    jobs_running: int = u32(10)
    jobs_ineligible: int = u32(11)
    nodes_available: int = u32(12)
    nodes_total: int = u32(13)
    gpus_used: int = u32(14)
    gpus_total: int = u32(15)
    decisions: int = u64(16)
    """Decisions since the controller started."""
    rejects: int = u64(17)
    """Decisions that were rejected."""
    fallbacks: int = u64(18)
    """Decisions by the fallback."""
    guarded: int = u64(31)
    """Decisions that a rule made in a learned policy's place."""
    guard: str = text(32)
    """Reason of the last decision, if it was one of them; empty = it was not."""
    outside: str = text(33)
    """Where the last state was outside the range of the policy's training; empty = it was not."""
    slurm_errors: int = u64(19)
    """Requests that Slurm did not carry out."""
    last_error: str = text(20)
    """The last error; empty = none."""
    partitions: tuple[str, ...] = texts(21)
    """Managed partitions."""
    nodes: tuple[NodeUse, ...] = many(22, NodeUse)
    jobs_yielded: int = u32(23)
    """Pending jobs that were given to Slurm to place."""
    lease_time_s: float = real(24)
    """Last renewal of the lease, seconds since the Unix epoch; 0 = there is none."""
    lease_stale: bool = flag(25)
    """True = Slurm schedules by itself at the moment."""
    agents: AgentsStatus = sub(26, AgentsStatus)
    advice: tuple[MoveAdvice, ...] = many(27, MoveAdvice)
    """Moves that the contention threshold advises now, the most urgent first; empty where jobs are private."""
    preemptions_open: int = u32(28)
    """Preemptions that have not ended."""
    preemptions_started: int = u32(29)
    """Open preemptions whose job runs again."""
    troubles: tuple[str, ...] = texts(30)
    """A sentence for each background task that failed in the last minutes."""
    decision_s: float = real(34)
    """Time that the decision of the last cycle took, seconds; 0 = there was nothing to decide."""
    preemption_budget: int = u32(35)
    """Stops by threshold and policies that are allowed within an hour."""
    preemption_budget_left: int = u32(36)
    """Number of them that are left now."""
    slurm_calls: tuple[SlurmCalls, ...] = many(37, SlurmCalls)
    """Calls to Slurm since the controller started, by verb; the one that took most time first."""
    watchdog_time_s: float = real(38)
    """Begin of the watchdog's last check, seconds since the Unix epoch; 0 = none is known, or Slurm is embedded."""
    watchdog_silent: bool = flag(39)
    """True = the watchdog should have checked by now."""
    plan_s: float = real(40)
    """Time from the snapshot of the last cycle to its checked plan, seconds; 0 = there was none yet."""
    left_out: tuple[LeftOut, ...] = many(41, LeftOut)
    """Unexpected errors since the controller started, by part of Headway; empty = none."""
