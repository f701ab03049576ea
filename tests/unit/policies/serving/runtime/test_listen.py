"""A server whose stop is cut off half-way leaves no files of gRPC behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
