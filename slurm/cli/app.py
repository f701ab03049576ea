"""headway-minicluster: a real Slurm on one machine, for tests and experiments."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from policies.serving.runtime.version import version_option
from slurm.cli.compare import compare
from slurm.cli.fidelity import fidelity
from slurm.cli.running import down, exec_on, restart, status
from slurm.cli.up import up
from slurm.signals import end_on_signals

app = typer.Typer(
    name="headway-minicluster",
    help="A real Slurm cluster on one machine: slurmctld and some nodes, each with its own IP, host name and fake GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (up, down, status, restart, compare, fidelity):
    app.command()(command)
# Options behind the host are those of the command that is run.
app.command("exec", context_settings={"allow_interspersed_args": False})(exec_on)


@app.callback()
def _root(_version: Annotated[bool, version_option("headway-minicluster")] = False) -> None:
    """Start, show and end a real Slurm on one machine."""


def main() -> None:
    """Run the command line. An error is one paragraph on standard error, with exit status 1."""
    end_on_signals()
    try:
        app()
    except SystemExit:
        raise
    except Exception as error:
        from slurm.errors import MiniClusterError
        from slurm.testbed.programs import InstallationError

        if not isinstance(error, MiniClusterError | InstallationError) or os.environ.get("HEADWAY_DEBUG"):
            raise
        sys.stderr.write(f"headway-minicluster: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
