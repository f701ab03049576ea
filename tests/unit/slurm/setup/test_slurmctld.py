"""State of slurmctld: only refused connections prove that none runs, and no failure of scontrol does."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.slurm.configuration.conf import read_slurm_conf
from slurm.setup.slurmctld import RunningSlurmctld, SlurmctldState, UnknownSlurmctld, slurmctld_state


@dataclass
class Head:
    """The machine of a slurmctld, with a scontrol and a /proc of its own."""

    folder: Path
    port: int

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def scontrol(self, script: str) -> None:
        program = self.folder / "bin" / "scontrol"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def process(self, pid: int, *words: str) -> None:
        (self.folder / "proc" / str(pid)).mkdir()
        (self.folder / "proc" / str(pid) / "comm").write_text(f"{Path(words[0]).name}\n")
        (self.folder / "proc" / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))

    def state(self, *, gone: bool = False) -> SlurmctldState:
        return slurmctld_state(read_slurm_conf(self.conf), gone=gone, proc=self.folder / "proc")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that nothing serves until the test listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> Head:
    port = listener.getsockname()[1]
    for name in ("bin", "proc"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = Head(tmp_path, port)
    found.conf.write_text(f"ClusterName=lab\nSlurmctldHost=head(127.0.0.1)\nSlurmctldPort={port}\n")
    found.scontrol("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    return found


def test_settings_of_a_slurmctld_that_answers(head: Head) -> None:
    head.scontrol("echo 'ClusterName             = lab'; echo 'JobSubmitPlugins        = lua'")
    state = head.state(gone=True)
    assert isinstance(state, RunningSlurmctld)
    assert state.loads_lua()


@pytest.mark.parametrize("script", ["exit 1", "true", "echo 'Protocol authentication error' >&2; exit 1"])
def test_refused_connections_and_no_process_are_certain(head: Head, script: str) -> None:
    head.scontrol(script)
    head.process(7, "/usr/sbin/slurmd", "-D")
    head.process(8, "/usr/sbin/slurmctld", "-D", "-f", "/etc/other/slurm.conf")
    assert head.state() is None


def why(state: SlurmctldState) -> str:
    assert isinstance(state, UnknownSlurmctld)
    return state.why


def test_a_failure_of_scontrol_proves_nothing_while_a_program_listens(head: Head, listener: socket.socket) -> None:
    listener.listen()
    head.scontrol("echo attempt 1 >&2; echo attempt 2 >&2; echo 'Protocol authentication error' >&2; exit 1")
    assert "attempt" not in why(head.state())
    assert "Protocol authentication error" in why(head.state())
    assert f"a program listens at 127.0.0.1, port {head.port}" in why(head.state())
    assert head.state(gone=True) is None


@pytest.mark.parametrize("options", [("-D",), ("-D", "-f", "CONF"), ("-fCONF",), ("-D", "-f", "slurm.conf")])
def test_a_process_on_this_machine_may_use_the_files(head: Head, options: tuple[str, ...]) -> None:
    head.process(9, "/usr/sbin/slurmctld", *(word.replace("CONF", str(head.conf)) for word in options))
    assert "a slurmctld runs on this machine (process 9)" in why(head.state())


@pytest.mark.parametrize(
    "text",
    [
        "ClusterName=lab\n",
        "SlurmctldHost=no-such-machine.invalid\n",
        "SlurmctldHost=127.0.0.1\nSlurmctldPort=x\n",
        "SlurmctldHost=127.0.0.1\nSlurmctldPort=70000-70001\n",
        'SlurmctldHost="a b"\n',
    ],
)
def test_a_port_that_cannot_be_tried_proves_nothing(head: Head, text: str) -> None:
    head.conf.write_text(text)
    assert why(head.state())
