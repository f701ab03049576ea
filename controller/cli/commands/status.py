"""`headway status`, `queue`, `why`, `report` and `events`: what the controller does, and why."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from controller.cli.commands.call import connected, show
from controller.cli.commands.options import (
    Config,
    EventsOf,
    JobId,
    Json,
    Limit,
    Me,
    NoFollow,
    QueueState,
    Since,
    SocketPath,
    States,
    Until,
    User,
)
from controller.cli.commands.times import time_of
from controller.cli.render.jobs import show_explanation, show_queue
from controller.cli.render.json_output import plain, write_json
from controller.cli.render.report import show_report
from controller.cli.render.status import show_event, show_status

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2


def status(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """Show the state of the controller, its policy, the queue and the nodes."""
    with connected(config, socket, as_json) as client:
        show(client.status(), as_json, lambda found: show_status(found, limit))


def queue(
    user: User = None,
    me: Me = False,
    state: States = None,
    as_json: Json = False,
    limit: Limit = 100,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """List every managed job that has not ended; waiting jobs are in the policy's order."""
    if me and user is not None:
        raise typer.BadParameter("give --me or --user, not both")
    wanted = own_name() if me else user
    with connected(config, socket, as_json) as client:
        show(chosen(client.queue(), wanted, state or ()), as_json, lambda found: show_queue(found, limit, time.time()))


def chosen(queue: admin_pb2.Queue, user: str | None, states: Collection[QueueState]) -> admin_pb2.Queue:
    """Return the jobs of that user (None: of all) in one of those states (none: in any), in the same order."""
    from protos.headway.v1 import admin_pb2

    entries = [
        entry
        for entry in queue.entries
        if user in {None, entry.user} and (not states or entry.state in {state.value for state in states})
    ]
    return admin_pb2.Queue(entries=entries)


def own_name() -> str:
    """Return the user who runs this program, as Slurm names the owner of jobs."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise typer.BadParameter(f"--me: user id {os.getuid()} has no name; give --user NAME") from None


def why(
    job_id: JobId,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Explain why a job waits, or why it runs where it runs, with the numbers behind it."""
    with connected(config, socket, as_json) as client:
        show(client.why(job_id), as_json, show_explanation)


def report(
    job_id: JobId,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Report what became of a job: how long it waited and why, where it ran, its steps, what its stops and other jobs cost it."""
    with connected(config, socket, as_json) as client:
        show(client.report(job_id), as_json, show_report)


def events(
    since: Since = None,
    until: Until = None,
    job: EventsOf = "",
    no_follow: NoFollow = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Print events as they happen, until Ctrl-C; with --since, --until or --no-follow also past ones. With --json, one
    object per line."""
    from protos.headway.v1 import admin_pb2

    now_s = time.time()
    request = admin_pb2.WatchEventsRequest(job_id=job, past_only=no_follow)
    if since is not None or until is not None or no_follow:
        request.since_s = 0.0 if since is None else time_of(since, now_s)
    if until is not None:
        request.until_s = time_of(until, now_s)
    with suppress(KeyboardInterrupt), connected(config, socket, as_json) as client:
        for event in client.events(request):
            if as_json:
                write_json(plain(event))
            else:
                show_event(event)
