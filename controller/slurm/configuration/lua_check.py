"""Checks a Lua script with Lua's own compiler, where there is one: slurmctld does not start with a script that it cannot load."""

from __future__ import annotations

import re
import shutil
import subprocess

COMPILERS = ("luac", "luac5.4", "luac5.3", "luac5.1")
"""Names of Lua's compiler: plain, and as Debian and others install it."""
_TIMEOUT_S = 10.0
_LONGEST = 300
_PROGRAM = re.compile(r"\A\S*luac\S*: ")
"""The compiler's name, with which it begins its message."""


def lua_error(text: str) -> str | None:
    """Return why the script cannot be parsed; None when it can be, or when there is no compiler."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        return None
    try:
        done = subprocess.run(
            [compiler, "-p", "-"],
            input=text.encode("utf-8", "replace"),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return None
    message = _PROGRAM.sub("", " ".join(done.stderr.decode("utf-8", "replace").split()))
    return message[:_LONGEST] or f"{compiler} ended with {done.returncode}"
