"""JSON, progress and errors of the papers' programs, `python -m simulator.papers...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from policies.errors import PolicyError
from simulator.errors import SimulatorError


def answer(program: Callable[[Sequence[str] | None], Any], arguments: Sequence[str] | None = None) -> int:
    """Print what the program returns as one JSON object; return the exit status: 2 for an error of the user, in one line."""
    try:
        found = program(arguments)
    except (SimulatorError, PolicyError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


def progress(text: str) -> None:
    """Write a line of progress on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
