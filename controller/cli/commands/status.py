"""`headway status`, `queue`, `why` and `events`: what the controller does, and why."""

from __future__ import annotations

from contextlib import suppress

from controller.cli.commands.call import connected, show
from controller.cli.commands.options import Config, JobId, Json, Limit, SocketPath
from controller.cli.render.jobs import show_explanation, show_queue
from controller.cli.render.json_output import plain, write_json
from controller.cli.render.status import show_event, show_status


def status(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """Show the state of the controller, its policy, the queue and the nodes."""
    with connected(config, socket, as_json) as client:
        show(client.status(), as_json, lambda found: show_status(found, limit))


def queue(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """List every managed job that has not ended; waiting jobs are in the policy's order."""
    with connected(config, socket, as_json) as client:
        show(client.queue(), as_json, lambda found: show_queue(found, limit))


def why(
    job_id: JobId,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Explain why a job waits, or why it runs where it runs, with the numbers behind it."""
    with connected(config, socket, as_json) as client:
        show(client.why(job_id), as_json, show_explanation)


def events(as_json: Json = False, config: Config = None, socket: SocketPath = None) -> None:
    """Print events as they happen, until Ctrl-C. With --json, one object per line."""
    with suppress(KeyboardInterrupt), connected(config, socket, as_json) as client:
        for event in client.events():
            if as_json:
                write_json(plain(event))
            else:
                show_event(event)
