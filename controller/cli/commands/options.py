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
    typer.Option("--config", "-c", help="The controller's settings file.", show_default="/etc/headway/controller.toml"),
]
SocketPath = Annotated[
    Path | None,
    typer.Option("--socket", help="Use this socket of the controller, and read no settings file.", show_default=False),
]
