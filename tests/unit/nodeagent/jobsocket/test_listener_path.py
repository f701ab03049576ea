"""The path of the job socket: its modes, and what may already be there."""

import stat
import subprocess
import sys

import pytest

from nodeagent.errors import SocketError
from tests.unit.nodeagent.jobsocket.peers import Job


async def test_the_modes_of_socket_and_folder(serve):
    server = serve()
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o666
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o755


async def test_the_socket_of_a_dead_agent_is_replaced(serve, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    dead = subprocess.run(
        [
            sys.executable,
            "-c",
            "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])",
            folder / "job.sock",
        ],
        check=True,
    )
    assert dead.returncode == 0
    assert (folder / "job.sock").is_socket()
    server = serve()
    assert await Job(server.path).hear() is not None


async def test_a_live_agent_is_left_alone(serve):
    first = serve()
    with pytest.raises(SocketError, match="another agent listens there"):
        serve()
    assert await Job(first.path).hear() is not None
    first.close()
    assert not first.path.exists()
    assert await Job(serve().path).hear() is not None


async def test_places_where_it_cannot_be(serve, tmp_path):
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with pytest.raises(SocketError, match="other users could put their own socket"):
        serve(path=open_folder / "job.sock")
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketError, match="is not a folder"):
        serve(path=tmp_path / "file" / "job.sock")
    with pytest.raises(SocketError, match="cannot be created"):
        serve(path=tmp_path / "no" / "such" / "job.sock")
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run" / "job.sock").write_text("precious")
    with pytest.raises(SocketError, match="it is not a socket"):
        serve()
    assert (tmp_path / "run" / "job.sock").read_text() == "precious"
    (tmp_path / "run" / "job.sock.lock").unlink()
    (tmp_path / "run" / "job.sock.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketError, match="check owner and mode"):
        serve()
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(SocketError, match="set job_socket to a short path"):
        serve(path=tmp_path / ("x" * 120))
