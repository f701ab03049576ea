"""Servers that listen, sockets that are only there, processes whose names are not text, and programs of other users."""

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.minicluster.handle import RunningCluster
from slurm.minicluster.host.cgroups import freezer_of
from slurm.minicluster.hosts import Hosts
from slurm.minicluster.record import RecordStore
from slurm.minicluster.spec import ClusterSpec
from slurm.processes import Identity, ProcessRef, accepts, all_pids, command_line, command_name, run, run_tied
from slurm.testbed.agents import _listens
from tests.unit.slurm.trial_cluster import as_root, trial

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


def login_of(name: str) -> dict[str, str]:
    account = pwd.getpwnam(name)
    return {"HOME": account.pw_dir, "USER": name, "LOGNAME": name, "SHELL": account.pw_shell}


@as_root
def test_a_program_of_another_user_has_the_variables_of_its_login() -> None:
    lines = run("env", user=Identity.of("daemon")).stdout.splitlines()
    assert dict(line.split("=", 1) for line in lines if "=" in line).items() >= login_of("daemon").items()


def test_a_command_on_a_host_has_the_variables_of_its_users_login(tmp_path: Path) -> None:
    cluster = RunningCluster(Hosts(trial(ClusterSpec(name="trial")), RecordStore(tmp_path)))
    assert cluster.environment_on("daemon").items() >= {**login_of("daemon"), **cluster.env}.items()
    assert cluster.environment_on() == {**os.environ, **cluster.env}


def test_output_in_any_encoding_is_taken() -> None:
    assert run("printf", r"caf\351").stdout == r"caf\xe9"


def test_a_command_whose_process_has_ended_before_it_is_tied_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tied("touch", str(tmp_path / "mine"))
    monkeypatch.setattr("os.getpid", lambda: 1)  # as a child sees it that has another parent by now
    run_tied("touch", str(tmp_path / "orphan"), check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
