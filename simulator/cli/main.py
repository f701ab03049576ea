"""headway-sim: simulate policies on traces, compare them, and make traces.

Exit codes: 0 done; 1 a target of `bench` was missed; 2 wrong usage or wrong input, in one line;
130 interrupted. Each command imports what it needs when it runs, so that `--help` and small runs are fast.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

from policies.serving.runtime.arithmetic import use_one_thread

INTERRUPTED = 130


def main() -> None:
    """Entry point of the program."""
    gc.disable()  # imports leave no garbage; it is enabled again after them
    use_one_thread()  # as in the policy server, so that both decide in the same way and the same time
    sys.exit(_ended_well(_plain_run if sys.argv[1:2] == ["run"] else _with_typer))


def __getattr__(name: str) -> object:
    """Make `app`, the commands of typer, on first use."""
    if name == "app":
        from simulator.cli.app import app

        return app
    raise AttributeError(name)


def _plain_run() -> int:
    from simulator.cli.plain import plain

    found = plain(sys.argv[2:])
    if found is None:
        return _with_typer()
    from policies.errors import PolicyError
    from simulator.errors import SimulatorError
    from simulator.runs.one import run
    from simulator.runs.options import RunOptions

    policy, out, as_json = found.pop("policy"), found.pop("out", None), found.pop("as_json", False)
    try:
        run(RunOptions(**found), policy, out, as_json)
    except (SimulatorError, PolicyError) as error:
        sys.stderr.write(f"headway-sim run: {' '.join(str(error).split())}\n")
        return 2
    return 0


def _with_typer() -> int:
    from simulator.cli.app import answer

    gc.enable()
    return answer()


def _ended_well(command: Callable[[], int]) -> int:
    """Run the command and return its exit code, also if it is interrupted or its output is closed."""
    try:
        code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("headway-sim: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the output: flushing the rest of the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
