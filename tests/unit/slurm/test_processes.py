"""Servers that listen, sockets that are only there, and processes whose names are not text."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.minicluster.host.cgroups import freezer_of
from slurm.processes import ProcessRef, accepts, all_pids, command_line, command_name
from slurm.testbed.agents import _listens

_NAME = b"\xfcber) Z 1"
"""ISO 8859-1, with what looks like the end of the name in /proc/PID/stat."""
_RENAMED = f"""
import ctypes, sys
ctypes.CDLL(None).prctl(15, {_NAME!r}, 0, 0, 0)
print("renamed", flush=True)
sys.stdin.read()
"""


def test_a_socket_that_is_bound_accepts_only_once_it_listens(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    assert not accepts(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert path.exists()
        assert not accepts(path)
        server.listen()
        assert accepts(path)
    assert not accepts(path)


@pytest.fixture
def renamed() -> Iterator[int]:
    """Pid of a process whose name is not UTF-8."""
    with subprocess.Popen([sys.executable, "-c", _RENAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"renamed\n"
        yield process.pid


def test_a_process_whose_name_is_not_utf8_is_found_like_any_other(renamed: int) -> None:
    ref = ProcessRef.of(renamed)
    assert ref is not None
    assert ref.alive()
    assert command_name(renamed) == _NAME.decode(errors="replace")
    assert command_line(renamed)[:2] == (sys.executable, "-c")
    # as `down` looks for what is left
    assert ref in [ProcessRef.of(pid) for pid in all_pids()]


def test_a_process_in_a_cgroup_whose_name_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(b"5:freezer:/\xfcber\n0::/\n")
    found = freezer_of(7, root=Path("/sys"), proc=tmp_path)
    assert found is not None
    assert os.fsencode(found) == b"/sys/freezer/\xfcber"


def test_a_socket_whose_name_is_not_utf8_hides_no_other(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as server:
        other.bind(os.fsencode(tmp_path) + b"/\xfcber")
        server.bind(str(tmp_path / "job.sock"))
        assert _listens(os.getpid(), tmp_path / "job.sock")
        assert not _listens(os.getpid(), tmp_path / "other.sock")
