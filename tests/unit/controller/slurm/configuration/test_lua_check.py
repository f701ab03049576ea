"""A script is refused only by a compiler of the Lua that slurmctld has."""

from __future__ import annotations

import ctypes.util
from importlib import resources
from pathlib import Path

import pytest

from controller.slurm.configuration.lua_check import lua_error

GOTO = "goto done ::done::\n"
"""Valid since Lua 5.2."""


class Machine:
    """A machine with compilers of several versions, each a program that knows its version and what it refuses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()

    def luac(self, name: str, version: str, refuses: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(
            f'#!/bin/sh\nPATH=/usr/bin:/bin\nif [ "$1" = -v ]; then echo "{version}"; exit 0; fi\n'
            f'if grep -q "{refuses}"; then echo "{name}: stdin:1: refused" >&2; exit 1; fi\n'
        )
        path.chmod(0o755)

    def plugin(self, *libraries: str) -> None:
        folder = self.folder / "usr" / "lib" / "x86_64-linux-gnu" / "slurm-wlm"
        folder.mkdir(parents=True)
        (folder / "job_submit_lua.so").write_bytes(b"\x7fELF" + b"".join(b"\0" + name.encode() for name in libraries))

    def error(self, text: str) -> str | None:
        return lua_error(text, self.folder)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Machine(tmp_path)


def test_without_a_compiler_and_a_plugin_nothing_is_refused(machine: Machine) -> None:
    assert machine.error("=") is None


@pytest.mark.skipif(
    ctypes.util.find_library("lua5.1") is None, reason="no library of Lua here: apt-get install liblua5.1-0"
)
def test_without_a_compiler_the_library_of_the_plugin_is_asked(machine: Machine) -> None:
    machine.plugin("liblua5.1.so.0")

    assert machine.error(GOTO) == "stdin:1: '=' expected near 'done'"
    assert machine.error("local function end\n") == "stdin:1: '<name>' expected near 'end'"
    assert machine.error("x = 1 -- caf\udce9\n") is None  # a byte that is no UTF-8
    assert machine.error("slurm.no_such_function()\n") is None  # nothing is run
    source = resources.files("slurm.plugin") / "job_submit.lua"
    assert machine.error(source.read_text()) is None


def test_without_the_library_of_the_plugin_nothing_is_refused(machine: Machine) -> None:
    machine.plugin("liblua9.9.so.0")

    assert machine.error("=") is None


def test_a_script_is_refused_if_every_compiler_refuses_it(machine: Machine) -> None:
    machine.luac("luac", "Lua 5.1.5  Copyright", "goto")
    assert machine.error(GOTO) == "stdin:1: refused"

    machine.luac("luac5.3", "Lua 5.3.6  Copyright", "BROKEN")
    assert machine.error(GOTO) is None
    assert machine.error(f"{GOTO} BROKEN") == "stdin:1: refused"


@pytest.mark.parametrize(
    ("libraries", "refused"),
    [
        (("liblua5.1.so.0", "liblua.so", "liblua-5.1.so", "liblua.so.5.1"), True),
        (("liblua5.3.so.0",), False),
        (("liblua-5.4.so",), False),  # no compiler of 5.4 is here
        (("liblua5.1.so.0", "liblua5.3.so.0"), False),  # which of them is not known
    ],
)
def test_only_compilers_of_the_plugins_lua_count(machine: Machine, libraries: tuple[str, ...], refused: bool) -> None:
    machine.luac("luac", "Lua 5.1.5  Copyright", "goto")
    machine.luac("luac5.3", "Lua 5.3.6  Copyright", "BROKEN")
    machine.plugin(*libraries)

    assert machine.error(GOTO) == ("stdin:1: refused" if refused else None)
