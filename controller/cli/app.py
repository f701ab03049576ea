"""headway: shows what the controller does, and why. For operators and users, on the controller's machine.

Exit codes: 0 done; 1 refused, not found, or doctor found errors; 2 wrong usage;
3 the controller does not answer (for `cluster`: Slurm does not).
"""

from __future__ import annotations

from collections.abc import Callable
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
_COMMANDS: dict[Callable[..., None], str] = {
    status: "Show the state of controller, policy, queue and nodes.",
    queue: "List the jobs that wait or run, in the policy's order.",
    top: "Show state and queue until `q`; Enter explains a job.",
    why: "Explain why a job waits, or runs where it runs.",
    report: "Report what became of a job: waits, runs, stops, losses.",
    preempt: "Let a job save and stop; the policy places it again.",
    move: "Preempt a job, and place it on other nodes.",
    resize: "Preempt a job, and start it with another number of GPUs.",
    preemptions: "List jobs that were preempted or are about to be.",
    events: "Print events as they happen, or past ones.",
    notify: "Run a program for each event of your own jobs.",
    doctor: "Check the installation; list problems and their remedies.",
    cluster: "Print nodes and network as a file for headway-sim.",
}
"""Commands and their lines in the list of commands, which would be cut at its width otherwise."""
for _command, _line in _COMMANDS.items():
    app.command(short_help=_line)(_command)
app.add_typer(policy_app, name="policy")
app.add_typer(profile_app, name="profile", short_help="Profile a job (`headway profile JOBID`), show its measurements.")


@app.callback()
def _root(_version: Annotated[bool, version_option("headway")] = False) -> None:
    """Show what the Headway scheduler does with the jobs of this cluster."""


def main() -> None:
    """Entry point."""
    app()
