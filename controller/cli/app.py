"""headway: shows what the controller does, and why. For operators and users, on the controller's machine.

Exit codes: 0 done; 1 refused, not found, or doctor found errors; 2 wrong usage;
3 the controller does not answer (for `cluster`: Slurm does not).
"""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.commands.installation import cluster, doctor
from controller.cli.commands.notify import notify
from controller.cli.commands.policy import policy_app
from controller.cli.commands.preemption import move, preempt, preemptions, resize
from controller.cli.commands.profiles import profile_app
from controller.cli.commands.status import events, queue, report, status, why
from controller.cli.commands.top import top
from policies.serving.runtime.version import version_option

app = typer.Typer(
    help="Show what the Headway scheduler does with the jobs of this cluster, and why; preempt, move and resize jobs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done; 1 refused, not found, or doctor found errors; 2 wrong usage; "
    "3 the controller does not answer (for `cluster`: Slurm does not).",
)
for _command in (status, queue, top, why, report, preempt, move, resize, preemptions, events, notify, doctor, cluster):
    app.command()(_command)
app.add_typer(policy_app, name="policy")
app.add_typer(profile_app, name="profile")


@app.callback()
def _root(_version: Annotated[bool, version_option("headway")] = False) -> None:
    """Show what the Headway scheduler does with the jobs of this cluster."""


def main() -> None:
    """Entry point."""
    app()
