"""Sockets that servers leave behind: a stop that is cut off half-way, and a file that has become that of another server."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from policies.serving.runtime.listen import OwnSocket

_PROGRAM = """
import asyncio, os, sys, time
import grpc.aio
from policies.serving.runtime.listen import end

async def main(address):
    server = grpc.aio.server()
    server.add_insecure_port(address)
    await server.start()
    stopping = asyncio.create_task(end(server, 0.5))
    await asyncio.sleep(0)
    stopping._fut_waiter.cancel()  # what it waits for, not the task itself
    assert isinstance((await asyncio.gather(stopping, return_exceptions=True))[0], asyncio.CancelledError)

def kept():
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(name) for name in names if os.path.lexists(name) and "anon_inode" in os.readlink(name)]

asyncio.run(main(sys.argv[1]))
deadline = time.monotonic() + 20.0  # gRPC closes them in threads of its own
while kept() and time.monotonic() < deadline:
    time.sleep(0.02)
print(kept())
"""


def test_a_stop_that_is_cut_off_leaves_no_files_behind(tmp_path: Path) -> None:
    # In a process of its own: once gRPC has kept them, nothing tells them from those of the next server.
    command = [sys.executable, "-c", _PROGRAM, f"unix:{tmp_path}/served.sock"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_only_the_own_socket_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "page.sock"
    # given a server that does not listen any more, and another that has taken its path
    with closing(socket.socket(socket.AF_UNIX)) as old:
        old.bind(str(path))
        own = OwnSocket.at(path)
    path.unlink()
    with closing(socket.socket(socket.AF_UNIX)) as new:
        new.bind(str(path))
        # when the first removes its socket, then that of the second stays
        own.remove()
        assert path.exists()
        OwnSocket.at(path).remove()
    assert not path.exists()
    own.remove()
