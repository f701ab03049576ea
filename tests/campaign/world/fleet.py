"""The agents of a story, and the ranks that train in its jobs. They are deterministic, and outlive the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller.agents.node_table import NodeStatus
from controller.slurm.client import Phase
from controller.slurm.embedded.ctld.job import Job
from protos.headway.v1 import agent_pb2
from tests.campaign.world.lies import SeenRun

NS = 1_000_000_000
_ANSWER_AFTER_S = 0.2
_STEPS_PER_S = 1.0

Deliver = Callable[[str, agent_pb2.AgentReport], None]


@dataclass(slots=True)
class Training:
    """One run of a job whose ranks save on request. Invariant: while it pauses, its steps are those that it has saved."""

    job: Job
    restart: int
    began_s: float
    began_step: int
    stands_at: int | None = None
    stands_until_s: float = 0.0
    saved: int | None = None
    asked: dict[str, set[str]] = field(default_factory=dict)
    """Save id → nodes that have received the request."""

    def steps(self, now_s: float) -> int:
        """Steps done."""
        if self.stands_at is not None and now_s < self.stands_until_s:
            return self.stands_at
        if self.stands_at is not None:
            self.train_on(self.stands_until_s)
        return self.began_step + int((now_s - self.began_s) * _STEPS_PER_S)

    def stand(self, now_s: float, still_s: float) -> int:
        """Save, and pause for at most so long. Return the step."""
        self.stands_at = self.saved = self.steps(now_s)
        self.stands_until_s = now_s + still_s
        return self.stands_at

    def seen(self) -> SeenRun:
        """Return what an agent that lies about the run knows of it."""
        nodes = frozenset(share.node for share in self.job.allocated)
        return SeenRun(self.job.raw_id or 0, nodes, tuple(self.asked))

    def train_on(self, now_s: float) -> None:
        """Continue training after a stop at a saved step; no effect on a run that is not stopped."""
        if self.stands_at is not None:
            self.began_step, self.began_s, self.stands_at = self.stands_at, now_s, None


class Fleet:
    """The agents as preemptions use them (protocol in `controller.preempt`): connected nodes, and a way to send them requests."""

    def __init__(self, nodes: list[str], monotonic: Callable[[], float], now: Callable[[], float]) -> None:
        self.monotonic, self._now = monotonic, now
        self._connected = dict.fromkeys(nodes, True)
        self._left_s: dict[str, float] = {}
        self.runs: dict[str, Training] = {}
        self.report_every_s = 5.0
        self._deliver: Deliver | None = None
        self._greet: Callable[[str], None] | None = None
        self._part: Callable[[str], None] | None = None

    # --- the controller's side

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node from which a report has come."""
        now_s = self._now()
        return {
            node: NodeStatus(node, there, now_s, "1", "boot", "run", 0.0) for node, there in self._connected.items()
        }

    def send_command(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        """Deliver a command as a stream to the node's agent would."""
        if not self._connected.get(node):
            return False
        asyncio.get_running_loop().call_later(_ANSWER_AFTER_S, self._heard, node, command)
        return True

    def attach(self, deliver: Deliver, greet: Callable[[str], None], part: Callable[[str], None] | None = None) -> None:
        """Connect the agents to this controller from now on. `greet` and `part` are called as an agent connects and leaves."""
        self._deliver, self._greet, self._part = deliver, greet, part
        for node, there in self._connected.items():
            if there:
                greet(node)

    def detach(self) -> None:
        """Note that the controller has ended."""
        self._deliver = self._greet = self._part = None

    # --- what happens to agents and jobs

    def leave(self, node: str) -> None:
        """Kill the agent of the node."""
        if self._connected[node]:
            self._left_s[node] = self.monotonic()
            if self._part is not None:
                self._part(node)
        self._connected[node] = False

    def come(self, node: str) -> None:
        """Start the agent of the node again."""
        self._connected[node] = True
        if self._greet is not None:
            self._greet(node)

    def lies(self, node: str, tell: Callable[[list[SeenRun], float], agent_pb2.AgentReport]) -> None:
        """Let the agent of the node send a report that `tell` makes of all runs and the time."""
        self._say(node, tell([run.seen() for run in self.runs.values()], self._now()))

    def silent_since(self, time_s: float) -> frozenset[str]:
        """Return the nodes whose agents have been away since then; none if no agent is there."""
        away = {node for node, there in self._connected.items() if not there}
        known = len(away) < len(self._connected)
        return frozenset(node for node in away if self._left_s[node] < time_s) if known else frozenset()

    def forget(self, job_id: str) -> None:
        """Note that the job has ended."""
        self.runs.pop(job_id, None)

    def started(self, job: Job) -> None:
        """Begin a run of a job that trains, at its newest checkpoint."""
        before = self.runs.get(job.job_id)
        step = 0 if before is None or before.saved is None else before.saved
        saved = None if before is None else before.saved
        self.runs[job.job_id] = Training(job, job.restarts, self.monotonic(), step, saved=saved)

    def standing(self, job_id: str) -> bool | None:
        """Return whether the job is stopped at the step that it saved; None: it does not train."""
        run = self.runs.get(job_id)
        if run is None:
            return None
        now_s = self.monotonic()
        return run.steps(now_s) == run.saved and run.stands_at is not None

    async def report(self) -> None:
        """Send the agents' reports every `report_every_s` seconds; never returns."""
        while True:
            await asyncio.sleep(self.report_every_s)
            for run in list(self.runs.values()):
                self._report(run)

    def _report(self, run: Training) -> None:
        job = run.job
        if job.phase is not Phase.RUNNING or job.restarts != run.restart:
            return
        first, now_s = 0, self.monotonic()
        size = sum(share.gpus for share in job.allocated)
        for share in job.allocated:
            ranks = range(first, first + share.gpus)
            first += share.gpus
            reported = agent_pb2.JobReport(
                job=agent_pb2.JobName(job_id=job.raw_id or 0, uid=1000, restart=run.restart),
                ranks=ranks,
                world_size=size,
                monotonic_ns=int((1000 + now_s) * NS),
            )
            reported.checkpoint.ranks.extend(ranks)
            if run.began_step:
                reported.checkpoint.restored_step = run.began_step
            if run.saved is not None:
                reported.checkpoint.saved_step = run.saved
            if run.steps(now_s) > run.began_step:
                reported.steps = run.steps(now_s)
                reported.first_step_ns = int((1000 + run.began_s + 1) * NS)
            self._say(share.node, agent_pb2.AgentReport(time_s=self._now(), job=reported))

    def _heard(self, node: str, command: agent_pb2.AgentCommand) -> None:
        if not self._connected.get(node):
            return
        run = next((each for each in self.runs.values() if each.job.raw_id == command.job.job_id), None)
        here = {share.node for share in run.job.allocated} if run is not None else set()
        if run is None or run.restart != command.job.restart or node not in here or run.job.phase is not Phase.RUNNING:
            problem = agent_pb2.CommandAnswer(
                id=command.id, problem="no process trains here", reason=agent_pb2.ANSWER_REASON_NO_TRAINERS
            )
            self._say(node, agent_pb2.AgentReport(time_s=self._now(), answer=problem))
        elif command.WhichOneof("what") == "go_on":
            run.train_on(self.monotonic())
        elif command.WhichOneof("what") == "save":
            self._save(run, here, node, command)

    def _save(self, run: Training, here: set[str], node: str, command: agent_pb2.AgentCommand) -> None:
        heard = run.asked.setdefault(command.id, set())
        heard.add(node)
        if heard != here:
            return
        step = run.stand(self.monotonic(), command.save.still_s)
        first = 0
        size = sum(share.gpus for share in run.job.allocated)
        for share in run.job.allocated:
            ranks = range(first, first + share.gpus)
            first += share.gpus
            saved = agent_pb2.SavedRanks(ranks=ranks, world_size=size, step=step)
            answer = agent_pb2.CommandAnswer(id=command.id, accepted=True, saved=saved)
            self._say(share.node, agent_pb2.AgentReport(time_s=self._now(), answer=answer))

    def _say(self, node: str, report: agent_pb2.AgentReport) -> None:
        if self._deliver is not None and self._connected.get(node):
            self._deliver(node, report)
