"""The agents of a story, and the ranks that train in its jobs. They are deterministic, and outlive the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from controller.agents.node_table import NodeStatus
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.job import Phase
from protos.headway.v1 import agent_pb2
from tests.campaign.world.lies import SeenRun

NS = 1_000_000_000
_ANSWER_AFTER_S = 0.2
_STEPS_PER_S = 1.0
_KEPT_ALIVE_S = 80.0
"""Time after which the controller's server closes the connection of an agent that does not answer (`agents.entry.gate`)."""
_PROBLEMS = {
    agent_pb2.ANSWER_REASON_NO_TRAINERS: "no process trains here",
    agent_pb2.ANSWER_REASON_CALLED_OFF: "it was called off",
    agent_pb2.ANSWER_REASON_TRAINED_ON: "ranks have trained on since",
}

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
    stands_for: str = ""
    """Id of the newest save for which it has paused."""
    called_off: set[str] = field(default_factory=set)
    """Ids of saves after which it was to train on."""

    def steps(self, now_s: float) -> int:
        """Steps done."""
        if self.stands_at is not None and now_s < self.stands_until_s:
            return self.stands_at
        if self.stands_at is not None:
            self.train_on(self.stands_until_s)
        return self.began_step + int((now_s - self.began_s) * _STEPS_PER_S)

    def stand(self, save_id: str, now_s: float, still_s: float) -> None:
        """Save, and pause for at most so long."""
        self.stands_for = save_id
        self.stands_at = self.saved = self.steps(now_s)
        self.stands_until_s = now_s + still_s

    def seen(self) -> SeenRun:
        """Return what an agent that lies about the run knows of it."""
        nodes = frozenset(share.node for share in self.job.allocated)
        return SeenRun(self.job.raw_id or 0, nodes, tuple(self.asked))

    def go_on(self, save_id: str, now_s: float) -> None:
        """Call a save off. A pause for another save goes on: the message was late."""
        self.called_off.add(save_id)
        if self.stands_for == save_id:
            self.train_on(now_s)

    def is_saved(self, save_id: str, now_s: float) -> bool:
        """Return whether it stands still for that save."""
        return self.stands_for == save_id and self.steps(now_s) == self.stands_at

    def why_not(self, save_id: str, now_s: float) -> agent_pb2.AnswerReason.ValueType | None:
        """Return why it will not pause for that save (any more); None: it will, or it does."""
        here = {share.node for share in self.job.allocated}
        if save_id in self.called_off:
            return agent_pb2.ANSWER_REASON_CALLED_OFF
        trained_on = self.asked.get(save_id) == here and not self.is_saved(save_id, now_s)
        return agent_pb2.ANSWER_REASON_TRAINED_ON if trained_on else None

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
        self._stopped: dict[str, list[Callable[[], None]]] = {}
        """Node whose agent stands still → commands and answers that wait for it, in their order."""
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

    def is_there(self, node: str) -> bool:
        """Return whether the agent of the node is connected."""
        return self._connected[node]

    def leave(self, node: str) -> None:
        """Kill the agent of the node."""
        self._stopped.pop(node, None)
        self._part_with(node)

    def _part_with(self, node: str) -> None:
        """End the connection of the node's agent."""
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

    def stop(self, node: str) -> None:
        """Stop the agent of the node (SIGSTOP). If it does not continue in time, the controller closes its connection."""
        if self._connected[node] and node not in self._stopped:
            waiting = self._stopped[node] = []
            asyncio.get_running_loop().call_later(_KEPT_ALIVE_S, self._close_dead, node, waiting)

    def cont(self, node: str) -> None:
        """Continue the agent of the node (SIGCONT): what has waited for it happens now."""
        waiting = self._stopped.pop(node, None)
        if waiting is None:
            return
        if not self._connected[node]:
            self.come(node)
        for happen in waiting:
            happen()

    def _close_dead(self, node: str, waiting: list[Callable[[], None]]) -> None:
        """Close the connection of an agent that still stands still since then; what was sent on it is lost."""
        if self._stopped.get(node) is waiting:
            waiting.clear()
            self._part_with(node)

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

    def saved_work_s(self, job_id: str) -> float:
        """Return the work that the present run of the job does not repeat, in seconds."""
        return self.runs[job_id].began_step / _STEPS_PER_S

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
        if (waiting := self._stopped.get(node)) is not None:
            waiting.append(partial(self._heard, node, command))
            return
        run = next((each for each in self.runs.values() if each.job.raw_id == command.job.job_id), None)
        here = {share.node for share in run.job.allocated} if run is not None else set()
        if run is None or run.restart != command.job.restart or node not in here or run.job.phase is not Phase.RUNNING:
            self._refuse(node, command.id, agent_pb2.ANSWER_REASON_NO_TRAINERS)
        elif command.WhichOneof("what") == "go_on":
            run.go_on(command.go_on.save_id, self.monotonic())
        elif (reason := run.why_not(command.id, self.monotonic())) is not None:
            self._refuse(node, command.id, reason)
        elif command.WhichOneof("what") == "save":
            self._save(run, here, node, command)

    def _refuse(self, node: str, save_id: str, reason: agent_pb2.AnswerReason.ValueType) -> None:
        answer = agent_pb2.CommandAnswer(id=save_id, problem=_PROBLEMS[reason], reason=reason)
        self._say(node, agent_pb2.AgentReport(time_s=self._now(), answer=answer))

    def _save(self, run: Training, here: set[str], node: str, command: agent_pb2.AgentCommand) -> None:
        heard = run.asked.setdefault(command.id, set())
        heard.add(node)
        if heard != here:
            return
        now_s = self.monotonic()
        if not run.is_saved(command.id, now_s):
            run.stand(command.id, now_s, command.save.still_s)
        first = 0
        size = sum(share.gpus for share in run.job.allocated)
        for share in run.job.allocated:
            ranks = range(first, first + share.gpus)
            first += share.gpus
            saved = agent_pb2.SavedRanks(ranks=ranks, world_size=size, step=run.saved or 0)
            answer = agent_pb2.CommandAnswer(id=command.id, accepted=True, saved=saved)
            self._say(share.node, agent_pb2.AgentReport(time_s=self._now(), answer=answer))

    def _say(self, node: str, report: agent_pb2.AgentReport) -> None:
        """Send a report. Of what an agent that stands still would have reported, only its answers come later."""
        waiting = self._stopped.get(node)
        if waiting is not None:
            if report.WhichOneof("kind") == "answer":
                waiting.append(partial(self._say, node, report))
        elif self._deliver is not None and self._connected.get(node):
            self._deliver(node, report)
