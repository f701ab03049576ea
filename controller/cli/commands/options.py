"""Options that several commands have."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
JobId = Annotated[str, typer.Argument(metavar="JOBID", help="Slurm's job id: 123, or 123_4 for one task of an array.")]
Limit = Annotated[int, typer.Option(min=0, help="Maximum number of lines; 0 shows all. JSON always has all.")]


class QueueState(Enum):
    """A state of jobs in the queue, as the controller names it."""

    WAITING = "waiting"
    STARTING = "starting"
    YIELDED = "yielded"
    RUNNING = "running"
    INELIGIBLE = "ineligible"


User = Annotated[
    str | None, typer.Option("--user", "-u", metavar="NAME", help="Only jobs of this user.", show_default=False)
]
Me = Annotated[bool, typer.Option("--me", help="Only your own jobs.")]
States = Annotated[
    list[QueueState] | None,
    typer.Option("--state", "-t", help="Only jobs in this state; may be repeated.", show_default=False),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="HEADWAY_CONFIG",
        help="The controller's settings file.",
        show_default="/etc/headway/controller.toml",
    ),
]
SocketPath = Annotated[
    Path | None,
    typer.Option("--socket", help="Use this socket of the controller, and read no settings file.", show_default=False),
]
_WHEN = 'How long ago ("90s", "15m", "1h", "2d"), or a local time ("14:30", "YYYY-MM-DD 14:30").'
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help=f"Begin with the past. {_WHEN}", show_default=False)
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="End before then, now or later.", show_default=False)
]
EventsOf = Annotated[
    str,
    typer.Option(
        "--job", metavar="JOBID", help="Only events of this job, or of all tasks of this array.", show_default=False
    ),
]
NoFollow = Annotated[bool, typer.Option("--no-follow", help="Print the events that there are, and end.")]
