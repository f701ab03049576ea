"""The command line's client of the Admin service: chooses the socket, makes one call, explains a failure."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from controller.admin.protocol import ADMIN_SOCKET, REASON, STANDBY_FILE, STATUS_SOCKET, Reason
from policies.documents import DocumentError, parse_toml, read_text, short
from protos.headway.v1 import admin_pb2, admin_pb2_grpc

REFUSED, USAGE, UNREACHABLE = 1, 2, 3

_DEFAULT_CONFIG = Path("/etc/headway/controller.toml")
_DEFAULT_FOLDER = Path("/run/headway")
_MOST_PATH = 4096
_MOST_HOST = 256
_DEADLINE_S = 5.0
_SWAP_DEADLINE_S = 60.0
_CONNECT_S = 2.0
_AGENTS_DEADLINE_S = 15.0
_STORE_DEADLINE_S = 60.0
_EXPORT_DEADLINE_S = 600.0
_PAST_DEADLINE_S = 60.0
_PING_S = 310.0
"""Time without data after which a stream is tested. A gRPC server ends connections that test more often than every 300 s."""
_PONG_S = 20.0
_CHECK = "is it running? (`systemctl status headway-controller`; `headway doctor` checks more)"
_MEND = f"{_CHECK}. Jobs are not affected: while the controller is away, Slurm schedules without Headway"
_BUSY = "it hangs, or is very busy; see its log (`journalctl -u headway-controller`)"
_HUNG = f"{_BUSY}. Jobs are not affected: if it does not recover, Slurm schedules without Headway"
_EXIT_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: USAGE,
    grpc.StatusCode.UNAVAILABLE: UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: UNREACHABLE,
    grpc.StatusCode.CANCELLED: UNREACHABLE,
}

T = TypeVar("T")


class CallError(Exception):
    """The controller gave no answer, or refused the call. The text says what to do; `exit_code` is the program's."""

    def __init__(self, text: str, exit_code: int, reason: str = "") -> None:
        """`reason` is the controller's word for it; empty: it gave none."""
        super().__init__(text)
        self.exit_code = exit_code
        self.reason = reason


def sockets(folder: Path) -> tuple[Path, Path]:
    """Return the sockets in that folder: the one for all calls, and the one that most users may open."""
    return folder / ADMIN_SOCKET, folder / STATUS_SOCKET


def find_socket(config: Path | None, given: Path | None, *, change: bool) -> Path:
    """Return the socket to use: for queries the first of the two that the caller may open, for changes admin.sock.

    Measurements of all users' jobs need admin.sock too. Raises CallError when none can be opened.
    """
    if given is not None:
        candidates = [given]
    else:
        folder = _runtime_dir(config)
        candidates = [folder / ADMIN_SOCKET] if change else [folder / ADMIN_SOCKET, folder / STATUS_SOCKET]
    problems: list[tuple[Path, OSError]] = []
    for path in candidates:
        try:
            _probe(path)
        except OSError as refused:
            problems.append((path, refused))
        else:
            return path
    # Most users may not open admin.sock, so the problem of the last socket is the one to report.
    path, problem = problems[-1]
    if isinstance(problem, PermissionError):
        users = (
            "root and the controller's user" if change else "root, the controller's user and the group of admin_group"
        )
        raise CallError(f"{path}: only {users} may use this socket (try with sudo)", REFUSED)
    if active := standby_for(path.parent):
        raise CallError(
            f"the controller of this machine stands by, because the slurmctld of {active} is active: run this on {active}",
            UNREACHABLE,
        )
    raise CallError(f"no controller answers at {path} ({problem.strerror or problem}): {_MEND}", UNREACHABLE)


def standby_for(folder: Path) -> str:
    """Return the machine for whose controller that of this runtime folder stands by; empty when it does not."""
    try:
        with (folder / STANDBY_FILE).open(encoding="utf-8") as file:
            return file.read(_MOST_HOST).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _probe(path: Path) -> None:
    """Connect and close: this reports a problem at once and precisely, whereas gRPC reports it after its time limit."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_S)
        probe.connect(str(path))


def _runtime_dir(config: Path | None) -> Path:
    """Return the runtime folder. The controller and `headway doctor` check the rest of the file."""
    path = _DEFAULT_CONFIG if config is None else config
    try:
        values = parse_toml(read_text(path))
    except (FileNotFoundError, PermissionError) as error:
        if config is None:
            return _DEFAULT_FOLDER
        raise CallError(
            f"{path}: {error.strerror}; give the controller's settings file with --config or in HEADWAY_CONFIG, or a socket with "
            "--socket",
            USAGE,
        ) from None
    except (OSError, DocumentError) as error:
        raise CallError(
            f"{path}: cannot be read: {error}; `headway-controller check-config` shows the problem", USAGE
        ) from None
    found = values.get("runtime_dir", str(_DEFAULT_FOLDER))
    if not isinstance(found, str) or len(found) > _MOST_PATH:
        raise CallError(
            f"{path}: runtime_dir: must be a string of at most {_MOST_PATH} characters, not {short(repr(found))}", USAGE
        )
    return Path(found)


class AdminClient:
    """One connection to the Admin service. Every call ends by its deadline, with an answer or a CallError; a stream of coming
    events ends when the controller does not answer to tests of the connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._channel = grpc.insecure_channel(
            f"unix:{path.absolute()}",
            options=(
                ("grpc.max_receive_message_length", 64 << 20),
                ("grpc.enable_http_proxy", 0),
                ("grpc.keepalive_time_ms", int(_PING_S * 1000)),
                ("grpc.keepalive_timeout_ms", int(_PONG_S * 1000)),
                ("grpc.http2.ping_timeout_ms", int(_PONG_S * 1000)),  # 60 s by default, and the longer one counts
                ("grpc.http2.max_pings_without_data", 0),
            ),
        )
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def status(self) -> admin_pb2.Status:
        """Return the state of controller, policy and cluster."""
        return self._call(self._stub.GetStatus, admin_pb2.GetStatusRequest())

    def queue(self) -> admin_pb2.Queue:
        """Return every managed job that has not ended."""
        return self._call(self._stub.GetQueue, admin_pb2.GetQueueRequest())

    def why(self, job_id: str) -> admin_pb2.Explanation:
        """Explain one job."""
        return self._call(self._stub.Why, admin_pb2.WhyRequest(job_id=job_id))

    def report(self, job_id: str) -> admin_pb2.JobSummary:
        """Report what became of one job."""
        return self._call(self._stub.GetReport, admin_pb2.GetReportRequest(job_id=job_id), _STORE_DEADLINE_S)

    def policy(self) -> admin_pb2.PolicyInfo:
        """Return the policy that decides."""
        return self._call(self._stub.GetPolicy, admin_pb2.GetPolicyRequest())

    def use_policy(self, address: str) -> admin_pb2.PolicyInfo:
        """Let another policy server decide."""
        return self._change(
            self._stub.UsePolicy,
            admin_pb2.UsePolicyRequest(address=address),
            _SWAP_DEADLINE_S,
            "The other policy may decide already: look at `headway policy show`",
        )

    def preempt(self, request: admin_pb2.PreemptRequest) -> admin_pb2.PreemptionRecord:
        """Request a job to save, and then stop it."""
        problem = "The preemption may have begun: look at `headway preemptions` before you request it again"
        return self._change(self._stub.Preempt, request, _DEADLINE_S, problem)

    def preemptions(self, limit: int = 0) -> admin_pb2.PreemptionList:
        """Return the newest preemptions, at most `limit` (0: all). One answer of the controller has a part of them."""
        found = admin_pb2.PreemptionList()
        before = 0
        while True:
            left = limit - len(found.preemptions) if limit else 0
            request = admin_pb2.ListPreemptionsRequest(limit=left, before=before)
            part = self._call(self._stub.ListPreemptions, request)
            found.preemptions.extend(part.preemptions)
            found.more = part.more
            if not part.more or not part.preemptions or (limit and len(found.preemptions) >= limit):
                return found
            before = part.preemptions[-1].number

    def preemption(self, number: int) -> admin_pb2.PreemptionRecord:
        """Return the preemption of that number."""
        found = self._call(self._stub.ListPreemptions, admin_pb2.ListPreemptionsRequest(number=number)).preemptions
        if not found:
            raise CallError(
                f"the controller shows no preemption {number} any more: it has dropped it, or Slurm has changed who may see the "
                "job; `headway preemptions` lists those that it shows",
                REFUSED,
            )
        return found[0]

    def profiles(self, limit: int) -> admin_pb2.ProfileList:
        """Return the measurements by kind of job, at most `limit` kinds (0: all). One answer has a part of them."""
        found = admin_pb2.ProfileList()
        request = admin_pb2.ListProfilesRequest(limit=limit)
        while True:
            part = self._call(self._stub.ListProfiles, request, _STORE_DEADLINE_S)
            found.MergeFrom(part)
            found.more = part.more
            # A controller of an earlier version names no time, and would return the same kinds again and again.
            if not part.more or not part.kinds or not part.HasField("until_s") or (limit and len(found.kinds) >= limit):
                return found
            request.skip, request.until_s = len(found.kinds), part.until_s
            request.limit = limit and limit - len(found.kinds)

    def profile(self, job_id: str, limit: int) -> admin_pb2.JobMeasurements:
        """Return the measurements of one job, with at most `limit` windows."""
        request = admin_pb2.GetProfileRequest(job_id=job_id, limit=limit)
        return self._call(self._stub.GetProfile, request, _STORE_DEADLINE_S)

    def profile_if_any(self, job_id: str) -> admin_pb2.JobMeasurements | None:
        """Return the measurements of one job with its newest window; None while there are none."""
        try:
            return self.profile(job_id, 1)
        except CallError as error:
            if error.reason != Reason.NOTHING_MEASURED:
                raise
            return None

    def request_profile(self, job_id: str, steps: int | None) -> admin_pb2.RequestedProfile:
        """Let the agents of a running job profile its next steps; None: as many as when a job starts."""
        request = admin_pb2.RequestProfileRequest(job_id=job_id, steps=steps)
        problem = (
            f"The profile may have been requested: look at `headway profile show {job_id}` before you request it again"
        )
        return self._change(self._stub.RequestProfile, request, _AGENTS_DEADLINE_S, problem)

    def export_profiles(self, since_s: float, racks: Mapping[str, str]) -> admin_pb2.SlowdownRows:
        """Return everything measured since then, as rows for fitting."""
        request = admin_pb2.ExportProfilesRequest(since_s=since_s, racks=racks)
        found = admin_pb2.SlowdownRows()
        try:
            for piece in self._stub.ExportProfiles(request, timeout=_EXPORT_DEADLINE_S):
                found.MergeFrom(piece)
        except grpc.RpcError as error:
            raise self._failure(error) from error
        return found

    def events(self, request: admin_pb2.WatchEventsRequest) -> Iterator[admin_pb2.Event]:
        """Yield the events that the request wants. Without an end in the request, they end only with the controller.

        Past events alone are read whole before the first is yielded: the time limit is the controller's, and not the reader's.
        """
        call: Any = self._stub.WatchEvents(request, timeout=_PAST_DEADLINE_S if request.past_only else None)
        try:
            self._await_begin(call)
            yield from list(call) if request.past_only else call
        except grpc.RpcError as error:
            raise self._failure(error) from error
        if request.past_only or request.HasField("until_s"):
            return
        raise CallError(f"the controller at {self._path} has ended; {_MEND}", UNREACHABLE)

    def _await_begin(self, call: Any) -> None:
        """Wait until the controller has accepted a stream, or refused it. Raises CallError when neither happens in time."""
        late = threading.Event()

        def end() -> None:
            late.set()
            call.cancel()

        timer = threading.Timer(_DEADLINE_S, end)
        timer.daemon = True
        timer.start()
        try:
            call.initial_metadata()  # gRPC has no time limit for it, other than that of the whole call
        finally:
            timer.cancel()
        if late.is_set():
            raise self._late()

    def _late(self, unsure: str = "") -> CallError:
        """Return the error of a call without an answer in time. `unsure`: sentence about a change that may have been made."""
        meaning = f"{_BUSY}. {unsure}" if unsure else _HUNG
        return CallError(
            f"the controller at {self._path} accepts calls, but does not answer in time; {meaning}", UNREACHABLE
        )

    def _call(self, call: Callable[..., T], request: Message, deadline_s: float | None = None) -> T:
        try:
            return call(request, timeout=_DEADLINE_S if deadline_s is None else deadline_s)
        except grpc.RpcError as error:
            raise self._failure(error) from error

    def _change(self, call: Callable[..., T], request: Message, deadline_s: float, unsure: str) -> T:
        """Make a call that changes something. `unsure` is for its user when no answer has come: it may have been made."""
        try:
            return call(request, timeout=deadline_s)
        except grpc.RpcError as error:
            raise self._failure(error, unsure) from error

    def _failure(self, error: Any, unsure: str = "") -> CallError:
        """Return the meaning of a grpc.RpcError: gRPC raises the call itself, which has a code and details that its type lacks.

        `unsure`: sentence about a change that may have been made.
        """
        code, details = error.code(), error.details() or "no reason given"
        exit_code = _EXIT_CODES.get(code, REFUSED)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._late(unsure)
        if exit_code == UNREACHABLE and not _is_not_ready(error):
            mend = f"{_CHECK}. {unsure}" if unsure else _MEND
            return CallError(f"no controller answers at {self._path} ({details}); {mend}", exit_code)
        return CallError(details, exit_code, _reason(error))


def _is_not_ready(error: Any) -> bool:
    """Return whether the controller itself has answered that it has not read Slurm yet."""
    return _reason(error) == Reason.NOT_READY.value


def _reason(error: Any) -> str:
    return next((str(value) for key, value in error.trailing_metadata() or () if key == REASON), "")
