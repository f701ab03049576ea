"""Checks a Lua script with Lua's own compiler, where there is one: slurmctld does not start with a script that it cannot load."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

COMPILERS = ("luac", "luac5.4", "luac5.3", "luac5.2", "luac5.1")
"""Names of Lua's compiler: plain, and as Debian and others install it."""
_PLUGINS = (
    "usr/lib/*/slurm*/job_submit_lua.so",
    "usr/l*/slurm/job_submit_lua.so",
    "usr/local/l*/slurm/job_submit_lua.so",
)
"""Places below / of the plugin that runs the script."""
_TIMEOUT_S = 10.0
_LONGEST = 300
_MOST_BYTES = 8 << 20
_PROGRAM = re.compile(r"\A\S*luac\S*: ")
"""The compiler's name, with which it begins its message."""
_LIBRARY = re.compile(rb"liblua[-a-z.]{0,4}([0-9]\.[0-9])")
"""A name of Lua's library in the plugin: liblua5.3.so.0, liblua-5.4.so, liblua.so.5.1."""
_VERSION = re.compile(r"\bLua ([0-9]\.[0-9])")


def lua_error(text: str, root: Path = Path("/")) -> str | None:
    """Return why the script cannot be parsed; None when it can be, or when there is no compiler of the Lua that slurmctld has.

    The versions of Lua accept different scripts. A compiler of another version than Slurm's plugin (below `root`) is not asked;
    where the versions are not known, the script is refused only if every compiler refuses it.
    """
    wanted = _plugin_version(root)
    errors = [
        _error_of(compiler, text)
        for compiler in _compilers()
        if wanted is None or _version_of(compiler) in {None, wanted}
    ]
    return next(iter(errors)) if errors and all(errors) else None


def _compilers() -> Iterator[str]:
    """Yield the paths of the compilers that this machine has, each program once."""
    seen: set[Path] = set()
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None and (real := Path(found).resolve()) not in seen:
            seen.add(real)
            yield found


def _plugin_version(root: Path) -> str | None:
    """Return the version of Lua that Slurm's plugin is built for; None when it is not known."""
    versions: set[bytes] = set()
    for path in (path for pattern in _PLUGINS for path in root.glob(pattern)):
        try:
            with path.open("rb") as file:
                versions |= set(_LIBRARY.findall(file.read(_MOST_BYTES)))
        except OSError:
            continue
    return versions.pop().decode() if len(versions) == 1 else None


def _version_of(compiler: str) -> str | None:
    """Return the version of a compiler, such as "5.3"; None when it does not print one."""
    done = _run(compiler, "-v")
    found = _VERSION.search((done.stdout + done.stderr).decode("utf-8", "replace")) if done else None
    return found[1] if found else None


def _error_of(compiler: str, text: str) -> str | None:
    """Return the message with which a compiler refuses the script; None when it accepts it, or cannot be run."""
    done = _run(compiler, "-p", "-", stdin=text.encode("utf-8", "replace"))
    if done is None or done.returncode == 0:
        return None
    message = _PROGRAM.sub("", " ".join(done.stderr.decode("utf-8", "replace").split()))
    return message[:_LONGEST] or f"{compiler} ended with {done.returncode}"


def _run(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
