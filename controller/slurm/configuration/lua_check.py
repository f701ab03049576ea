"""Checks a Lua script with Lua's own compiler: slurmctld does not start with a script that it cannot load.

A machine of slurmctld seldom has a program luac, but its plugin needs Lua's library, which has the same compiler.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
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
_LIBRARY_NAMES = ("liblua{}.so.0", "liblua-{}.so", "liblua{}.so", "liblua.so.{}")
"""Names of Lua's library by its version, as Slurm's plugin tries them."""
_CHECK_BY_LIBRARY = """
import ctypes, sys
for name in sys.argv[1:]:
    try:
        lua = ctypes.CDLL(name)
        break
    except OSError:
        continue
else:
    sys.exit()
pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
lua.luaL_newstate.restype, lua.luaL_newstate.argtypes = pointer, []
lua.lua_tolstring.restype, lua.lua_tolstring.argtypes = text, [pointer, ctypes.c_int, pointer]
state, script = lua.luaL_newstate(), sys.stdin.buffer.read()
if hasattr(lua, "luaL_loadbufferx"):  # since 5.2
    lua.luaL_loadbufferx.argtypes = [pointer, text, size, text, text]
    refused = lua.luaL_loadbufferx(state, script, len(script), b"=stdin", None)
else:
    lua.luaL_loadbuffer.argtypes = [pointer, text, size, text]
    refused = lua.luaL_loadbuffer(state, script, len(script), b"=stdin")
if refused:
    sys.stderr.buffer.write(lua.lua_tolstring(state, -1, None) or b"refused")
    sys.exit(1)
"""
"""A program that compiles its standard input by the first library that there is. It is a process: a library may crash one."""
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
    where the versions are not known, the script is refused only if every compiler refuses it. Without a compiler, the library
    that the plugin loads is asked.
    """
    wanted = _plugin_version(root)
    errors = [
        _error_of(compiler, text)
        for compiler in _compilers()
        if wanted is None or _version_of(compiler) in {None, wanted}
    ]
    if not errors and wanted is not None:
        errors = [_library_error(wanted, text)]
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
    return _message(done) or f"{compiler} ended with {done.returncode}"


def _library_error(version: str, text: str) -> str | None:
    """Return the message with which Lua's library refuses the script; None when it accepts it, is not found, or fails."""
    names = [name.format(version) for name in _LIBRARY_NAMES]
    done = _run(sys.executable, "-I", "-S", "-c", _CHECK_BY_LIBRARY, *names, stdin=text.encode("utf-8", "replace"))
    message = _message(done) if done is not None and done.returncode == 1 else ""
    return message if message.startswith("stdin:") else None  # any other message is of Python


def _message(done: subprocess.CompletedProcess[bytes]) -> str:
    return _PROGRAM.sub("", " ".join(done.stderr.decode("utf-8", "replace").split()))[:_LONGEST]


def _run(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
