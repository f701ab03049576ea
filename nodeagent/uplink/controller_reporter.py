"""The reporter that sends to the controller: rows become messages in the outbox, commands become calls to the agent."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from nodeagent.saves.coordinator import SaveAnswer, SaveRequest
from nodeagent.uplink.encode import (
    JobHistory,
    answer_message,
    job_message,
    reason_message,
    telemetry_message,
    topology_message,
)
from nodeagent.uplink.munge import CredentialCodec
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import ControllerStream, StreamSettings, StreamStatus
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.reasons import Reason
from nodeagent.wire.report import NodeReport, Topology
from protos.headway.v1 import agent_pb2

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
log = structlog.get_logger(__name__)

_MAX_PROBLEM_CHARS = 200


class CommandHandler(Protocol):
    """The calls that the controller's messages make to an agent."""

    def apply_settings(self, *, report_interval_s: float | None = None, profile_steps: int | None = None) -> None:
        """Apply the controller's settings for all agents."""

    def request_profile(self, job_id: int, steps: int) -> str:
        """Request a profile of a job. Return why that failed, or empty."""

    def request_save(self, request: SaveRequest) -> str:
        """Begin a save. Return why that is not possible, or empty: then the outcome is answered later."""

    def request_go_on(self, save_id: str, job_id: int, restart: int) -> None:
        """Call a save off, and let the job train on."""

    def give_report(self, job_id: int, restart: int, lines: Sequence[str]) -> None:
        """Give the job what the controller knows about it."""


class ControllerReporter:
    """A Reporter that sends to the controller. Invariant: no method waits; messages that must not be lost are marked `keep`."""

    def __init__(
        self,
        settings: StreamSettings,
        node: str,
        version: str,
        topology: Callable[[], Topology],
        agent: CommandHandler,
        codec: CredentialCodec | None,
        outbox: Outbox | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """At every dial `prepare` is awaited, and then `topology` called. Raises EndpointError if the address may not be used."""
        self._node = node
        self._version = version
        self._topology = topology
        self._agent = agent
        self._rows = RowGuard("rows of jobs for the controller")
        self._history = JobHistory(self._rows)
        self._outbox = Outbox() if outbox is None else outbox
        self._stream = ControllerStream(
            settings, self._hello, self._outbox, self._command, self._settings, codec, prepare=prepare
        )

    @property
    def status(self) -> StreamStatus:
        """State of the stream."""
        return self._stream.status

    def report(self, report: NodeReport) -> None:
        """Put the report into the outbox. Telemetry and jobs may be dropped when it is full; profiles and ends of runs are kept."""
        for message in self._history.new_messages(report):
            if not self._outbox.put(message, keep=True):
                log.error("profile_lost", reason="the outbox is full of messages that must be kept")
        self.report_early(report)
        self._outbox.put(telemetry_message(report))

    def report_early(self, report: NodeReport) -> None:
        """Put the jobs of the report into the outbox. They may be dropped, like all rows of jobs."""
        for _, message in self._rows.each(report.jobs, lambda job: job_message(job, report)):
            self._outbox.put(message)

    def answer(self, answer: SaveAnswer) -> None:
        """Put the answer into the outbox, to be kept."""
        self._outbox.put(answer_message(answer, time.time()), keep=True)

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        await self._stream.run()

    def _hello(self) -> agent_pb2.AgentHello:
        return agent_pb2.AgentHello(
            node=self._node,
            boot_id=BOOT_ID.read_text().strip(),
            boot_time_s=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME),
            agent_version=self._version,
            topology=topology_message(self._topology()),
        )

    def _settings(self, settings: agent_pb2.AgentSettings) -> None:
        self._agent.apply_settings(
            report_interval_s=settings.report_interval_s or None,
            profile_steps=settings.profile_steps,
        )

    def _command(self, command: agent_pb2.AgentCommand) -> None:
        try:
            problem = self._carried_out(command)
        except Exception as error:
            # An error here would end the stream, and the controller repeats the command on the next one.
            log.exception("command_failed", id=command.id)
            problem = f"the agent could not carry it out: {type(error).__name__}: {error}"[:_MAX_PROBLEM_CHARS]
        if problem is None:
            return
        reason = reason_message(Reason.REFUSED if problem else Reason.UNSPECIFIED)
        answer = agent_pb2.CommandAnswer(id=command.id, accepted=not problem, problem=problem, reason=reason)
        self._outbox.put(agent_pb2.AgentReport(time_s=time.time(), answer=answer), keep=True)

    def _carried_out(self, command: agent_pb2.AgentCommand) -> str | None:
        """Carry a command out. Return why that failed, or empty; None = it is answered when the outcome is known."""
        job = command.job
        match command.WhichOneof("what"):
            case "profile":
                return self._agent.request_profile(job.job_id, command.profile.steps)
            case "save":
                save = command.save
                request = SaveRequest(command.id, job.job_id, job.restart, save.within_s, save.still_s, save.why)
                return self._agent.request_save(request) or None
            case "go_on":
                self._agent.request_go_on(command.go_on.save_id, job.job_id, job.restart)
                return ""
            case "report":
                self._agent.give_report(job.job_id, job.restart, command.report.lines)
                return None  # nothing waits for an answer
            case _:
                return "this agent does not know the command; install the same version of Headway as the controller's"
