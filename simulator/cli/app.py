"""The commands of headway-sim, for typer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from policies.serving.runtime.version import version_option
from simulator.cli import act as cli_act
from simulator.cli import bench as cli_bench
from simulator.cli import compare as cli_compare
from simulator.cli import latency as cli_latency
from simulator.cli import leaderboard as cli_leaderboard
from simulator.cli import run as cli_run
from simulator.cli import start_estimates as cli_start_estimates
from simulator.cli import stress as cli_stress
from simulator.cli import trace as cli_trace
from simulator.cli.user_errors import with_errors_in_one_line

app = typer.Typer(
    name="headway-sim",
    help="Simulate policies on traces of jobs, compare them, and make traces.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done; 1 a target was missed; 2 wrong usage or wrong input, in one line; 130 interrupted.",
)
app.command()(with_errors_in_one_line(cli_run.run))
for _command, _line in (
    (cli_compare.compare, "Simulate several policies on one trace, in parallel."),
    (cli_leaderboard.leaderboard, "Compare policies on whole traces, at several loads."),
    (cli_stress.stress, "Run policies on workloads of many shapes."),
    (cli_act.act, "Let policies and trained agents act in an environment."),
    (cli_latency.latency, "Time every decision of policies on one trace."),
    (cli_start_estimates.start_estimates, "Measure how good estimates of starts are on a trace."),
    (cli_bench.bench, "Measure the simulator's speed on this machine."),
    (cli_bench.reproduce, "Reproduce the published results of a system."),
):
    app.command(short_help=_line)(with_errors_in_one_line(_command))
app.add_typer(cli_trace.app, name="trace", short_help="Convert, generate and describe traces.")
_UsageProblem = next(kind for kind in reversed(typer.BadParameter.__mro__) if hasattr(kind, "format_message"))


@app.callback()
def _root(_version: Annotated[bool, version_option("headway-sim")] = False) -> None:
    """Simulate policies on traces of jobs, compare them, and make traces."""


def answer() -> int:
    """Run the command line; return the exit code."""
    try:
        code = app(prog_name="headway-sim", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not isinstance(error, _UsageProblem):
            raise
        return _say(error)
    return code if isinstance(code, int) else 0


def _say(error: Any) -> int:
    """Print wrong usage as one line that names the help; print the help itself if there is no command."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
        return 2
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "headway-sim"
    text = " ".join(error.format_message().split())
    typer.echo(f"{command}: {text} See {command} --help.", err=True)
    return 2
