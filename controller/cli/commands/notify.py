"""`headway notify`: runs a program of the user for each event of their jobs, as the user, for as long as it runs itself."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.commands.call import fail
from controller.cli.commands.options import Config, EventsOf, SocketPath
from controller.cli.render.json_output import plain

if TYPE_CHECKING:
    from controller.cli.client import AdminClient
    from protos.headway.v1 import admin_pb2

_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0
"""Pauses before the next connection while the controller is away."""


class NotifyEvent(Enum):
    """Kind of the events of a job."""

    PLACED = "placed"
    STARTED = "started"
    PREEMPT = "preempt"
    HELD = "held"
    RELEASED = "released"
    ENDED = "ended"


_USUAL = [NotifyEvent.STARTED, NotifyEvent.PREEMPT, NotifyEvent.ENDED]


def notify(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments, after --.")
    ],
    event: Annotated[
        list[NotifyEvent],
        typer.Option(
            "--event", "-e", help="Only these events; may be repeated.", show_default="started, preempt, ended"
        ),
    ] = _USUAL,
    job: EventsOf = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which the program is killed.")] = 60.0,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Run a program for each event of your own jobs, until Ctrl-C; with --job until that job or array has ended.

    It runs as you, one event after the other, and gets the event as one JSON object on its standard input, as
    `headway events --json` prints it. While the controller is away, this waits for it.
    """
    from controller.cli.client import REFUSED, USAGE, AdminClient, CallError, find_socket

    if shutil.which(command[0]) is None:
        fail(f"{command[0]}: no such program; give its path, after --", USAGE, as_json=False)
    user, wanted = pwd.getpwuid(os.getuid()).pw_name, {each.value for each in event}

    def connect() -> AdminClient:
        return AdminClient(find_socket(config, socket, change=False))

    with suppress(KeyboardInterrupt):
        try:
            if job:
                with connect() as client:
                    if client.why(job).state == "ended":
                        fail(f"job {job} has ended already", REFUSED, as_json=False)
            ends = Ends(connect, job)
            for found in followed(connect, job, time.time()):
                if found.user == user and found.kind in wanted:
                    _run(command, found, timeout)
                if job and ends.with_event(found):
                    return
        except CallError as error:
            fail(str(error), error.exit_code, False, error.reason)


class Ends:
    """Knows when a job, or the last task of an array, has ended.

    The controller's queue may be that of the cycle before an event, so a task whose end was an event counts as ended even if the
    queue still has it.
    """

    def __init__(
        self, connect: Callable[[], AdminClient], job: str, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """`job`: id of a job, of a task, or of a whole array."""
        self._connect, self._job, self._pause = connect, job, pause
        self._ended: set[str] = set()
        """Tasks whose last event was their end. Bound: the tasks of the array."""

    def with_event(self, event: admin_pb2.Event) -> bool:
        """Return whether everything has ended with this event. Waits for a controller that is away. Raises CallError."""
        if event.kind != NotifyEvent.ENDED.value:
            self._ended.discard(event.job_id)
            return False
        self._ended.add(event.job_id)
        return event.job_id == self._job or self._tasks() <= self._ended

    def _tasks(self) -> set[str]:
        """Return the tasks of the array that the controller's queue has."""
        from controller.cli.client import UNREACHABLE, CallError

        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                with self._connect() as client:
                    entries = client.queue().entries
                return {entry.job_id for entry in entries if entry.job_id.startswith(f"{self._job}_")}
            except CallError as error:
                if error.exit_code != UNREACHABLE:
                    raise
            self._pause(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def followed(
    connect: Callable[[], AdminClient], job: str, since_s: float, pause: Callable[[float], None] = time.sleep
) -> Iterator[admin_pb2.Event]:
    """Yield the events since then, each once, also after restarts of the controller. Ends by Ctrl-C alone.

    Raises CallError when the first call fails, or when the controller refuses one.
    """
    from controller.cli.client import UNREACHABLE, CallError
    from protos.headway.v1 import admin_pb2

    # Events of the time `since_s`, which come again after a new connection. Bound: the events of one moment.
    newest: set[tuple[float, str, str, str]] = set()
    connected, pause_s = False, _FIRST_PAUSE_S
    while True:
        try:
            with connect() as client:
                client.policy()
                connected = True
                for event in client.events(admin_pb2.WatchEventsRequest(job_id=job, since_s=since_s)):
                    pause_s = _FIRST_PAUSE_S
                    key = (event.time_s, event.kind, event.job_id, event.text)
                    if key in newest:
                        continue
                    if event.time_s > since_s:
                        since_s, newest = event.time_s, set()
                    newest.add(key)
                    yield event
        except CallError as error:
            if error.exit_code != UNREACHABLE or not connected:
                raise
        pause(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def _run(command: Sequence[str], event: admin_pb2.Event, timeout_s: float) -> None:
    """Run the program to its end. What fails is reported, and is not repeated: the next event may succeed."""
    import json

    about = f"{event.kind} of job {event.job_id}"
    try:
        done = subprocess.run(
            list(command), input=json.dumps(plain(event)).encode(), timeout=timeout_s, check=False
        )  # killed when it takes longer
    except (OSError, subprocess.TimeoutExpired) as error:
        typer.echo(f"headway: {about}: {error}", err=True)
        return
    if done.returncode:
        typer.echo(f"headway: {about}: {command[0]} ended with status {done.returncode}", err=True)
