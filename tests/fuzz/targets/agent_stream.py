"""The stream between agents and the controller: credentials, messages of agents, messages of controllers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from google.protobuf.message import DecodeError

from controller.agents.entry.admission import Admission, RefusedError
from controller.agents.reports.report_screen import ReportScreen
from controller.profiles.sightings import Arrival, profile_of, sighting_of
from nodeagent.errors import AgentError
from nodeagent.saves.coordinator import SaveRequest
from nodeagent.uplink.controller_reporter import ControllerReporter
from nodeagent.uplink.munge import Credential
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.session import METADATA_KEY, SessionError, Ticket, check_ticket, make_ticket
from nodeagent.uplink.stream import StreamSettings
from protos.headway.v1 import agent_pb2
from tests.fuzz.target import BrokenPromiseError, Target
from tests.fuzz.targets.slurm_texts import at_once
from tests.unit.controller.examples.reports import Training

_HELLO = agent_pb2.AgentHello(node="n1", run_id="ab" * 16, boot_id="b", agent_version="0.1.0", time_s=1000.0)


def read_ticket(data: bytes, _folder: Path) -> object:
    """Unpack and check a ticket."""
    ticket = Ticket.unpack(data)
    check_ticket(ticket, 1000.0)
    if ticket.pack() != data:
        raise BrokenPromiseError("a ticket that is packed differently")
    return ticket


def bodies() -> list[bytes]:
    """Return what agents send."""
    reports = [Training(7, ("n1",), 2.0, batch_size=8).report("n1", 50.0)]
    reports += [
        agent_pb2.AgentReport(time_s=1.0, telemetry=_telemetry()),
        agent_pb2.AgentReport(time_s=1.0, profile=_profile()),
        agent_pb2.AgentReport(time_s=1.0, ended=agent_pb2.JobEnded(job=agent_pb2.JobName(job_id=7))),
        agent_pb2.AgentReport(time_s=1.0, answer=agent_pb2.CommandAnswer(id="p1.1", accepted=False, problem="late")),
    ]
    for number, report in enumerate(reports, start=1):
        report.number = number
    return [
        agent_pb2.AgentBody(hello=_HELLO).SerializeToString(),
        agent_pb2.AgentBody(beat=agent_pb2.AgentBeat()).SerializeToString(),
        agent_pb2.AgentBody(reports=agent_pb2.AgentReports(reports=reports, monotonic_ns=5)).SerializeToString(),
    ]


def _telemetry() -> agent_pb2.NodeTelemetry:
    found = agent_pb2.NodeTelemetry(interval_s=5.0)
    found.gpus.add(uuid="GPU-1", name="A100", busy=0.5)
    found.nics.add(name="eth0", rx_bytes_per_s=1e9)
    return found


def _profile() -> agent_pb2.JobProfile:
    found = agent_pb2.JobProfile(job=agent_pb2.JobName(job_id=7), steps=20, step_s=0.2, compute_s=0.1, script="a.py")
    found.kinds.add(kind="all_reduce", count=2.0, bytes=4e6, seconds=0.1)
    return found


def read_agent_body(data: bytes, _folder: Path) -> object:
    """Admit an agent with this first message; take the reports in it as those of an agent that was admitted."""
    admission = Admission(None, frozenset({0}))
    try:
        return admission.admit(None, agent_pb2.AgentMessage(number=0, body=data))
    except RefusedError:
        body = agent_pb2.AgentBody()
        if not _parses(body, data) or not body.reports.reports:
            raise
    screen = ReportScreen()
    return [_taken(screen, report) for report in body.reports.reports]


def _parses(body: agent_pb2.AgentBody, data: bytes) -> bool:
    try:
        body.ParseFromString(data)
    except DecodeError:
        return False
    return True


def _taken(screen: ReportScreen, report: agent_pb2.AgentReport) -> object:
    arrival = Arrival("n1", "ab", report, 1000.0, 0.0, ((0, 0),), None)
    screen.screen(arrival)
    match report.WhichOneof("kind"):
        case "job":
            return sighting_of(arrival)
        case "profile":
            return profile_of(arrival)
        case _:
            return None


class _NoJobs:
    """An agent without jobs: it takes every command that is valid."""

    def apply_settings(self, *, report_interval_s: float | None = None, profile_steps: int | None = None) -> None:
        pass

    def request_profile(self, job_id: int, steps: int) -> str:
        return "no such job"

    def request_save(self, request: SaveRequest) -> str:
        return "no such job"

    def request_go_on(self, save_id: str, job_id: int, restart: int) -> None:
        pass


def controller_bodies() -> list[bytes]:
    """Return what a controller sends."""
    job = agent_pb2.JobName(job_id=7, restart=1)
    save = agent_pb2.AgentCommand(id="p1.1", job=job, save=agent_pb2.SaveRequest(within_s=60.0, still_s=30.0))
    profile = agent_pb2.AgentCommand(id="q1", job=job, profile=agent_pb2.ProfileRequest(steps=20))
    found: Iterable[agent_pb2.ControllerBody] = (
        agent_pb2.ControllerBody(acknowledgement=agent_pb2.AgentAcknowledgement(number=4)),
        agent_pb2.ControllerBody(settings=agent_pb2.AgentSettings(report_interval_s=5.0, profile_steps=20)),
        agent_pb2.ControllerBody(command=save),
        agent_pb2.ControllerBody(command=profile),
        agent_pb2.ControllerBody(welcome=agent_pb2.AgentWelcome(acknowledged=3)),
    )
    return [body.SerializeToString() for body in found]


def read_controller_body(data: bytes, _folder: Path) -> object:
    """Take a message of the controller as the agent does; every command is answered."""
    outbox = Outbox()
    reporter = ControllerReporter(StreamSettings(("127.0.0.1:1",)), "n1", "1", lambda: None, _NoJobs(), None, outbox)  # type: ignore[arg-type, return-value]
    try:
        body = agent_pb2.ControllerBody.FromString(data)
    except DecodeError as error:
        raise AgentError("the controller sent an invalid message") from error
    match body.WhichOneof("kind"):
        case "command":
            reporter._command(body.command)
            if not len(outbox) and body.command.WhichOneof("what") != "go_on":
                raise BrokenPromiseError("a command without an answer")
        case "settings":
            reporter._settings(body.settings)
        case "acknowledgement":
            outbox.acknowledge(body.acknowledgement.number)
    return body


class _OneCredential:
    """Credentials of one payload."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    async def encode(self, payload: bytes, only_uid: int | None = None) -> str:
        return "x"

    async def decode(self, credential: str) -> Credential:
        return Credential(self._payload, 0, 0, 1000)


def read_metadata(data: bytes, _folder: Path) -> object:
    """Check the metadata of a call for its credential."""
    admission = Admission(_OneCredential(data), frozenset({0}), now=lambda: 1000.0)
    return at_once(admission.ticket([(METADATA_KEY, "x")]))


def tickets() -> list[bytes]:
    """Return tickets that are valid at second 1000."""
    return [make_ticket(b"hello", time_s, bytes(range(32))).pack() for time_s in (1000.0, 960.0, 1050.0)]


AGENT_STREAM = (
    Target(
        "tickets",
        "payloads of MUNGE credentials: any user of the cluster can make one",
        "bytes",
        tickets,
        read_ticket,
        (SessionError,),
    ),
    Target(
        "credentials",
        "the credential of a call, through admission",
        "bytes",
        tickets,
        read_metadata,
        (RefusedError,),
        cost=2,
    ),
    Target(
        "agent-messages", "hellos and reports of agents", "protobuf", bodies, read_agent_body, (RefusedError,), cost=3
    ),
    Target(
        "controller-messages",
        "commands and settings, read by agents",
        "protobuf",
        controller_bodies,
        read_controller_body,
        (AgentError,),
        cost=2,
    ),
)
