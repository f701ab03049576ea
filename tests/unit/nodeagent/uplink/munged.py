"""A private munged for tests."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.uplink.munge import Munge, MungeError
from slurm.processes import accepts


def skip_without_munge() -> None:
    if shutil.which("munged", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("munged is not installed")
    try:
        Munge().close()
    except MungeError as error:
        pytest.skip(str(error))


@contextmanager
def running_munged(key: bytes | None = None) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Start it, and yield its socket and process. The folder is short: the kernel allows 107 bytes for a socket's path."""
    skip_without_munge()
    folder = Path(tempfile.mkdtemp(prefix="munged-", dir="/tmp"))
    folder.chmod(0o755)
    key_file = folder / "key"
    key_file.touch(mode=0o400)
    key_file.write_bytes(secrets.token_bytes(128) if key is None else key)
    socket = folder / "socket"
    argv = [
        shutil.which("munged", path="/usr/sbin:/usr/bin:/sbin:/bin") or "munged", "--force", "--foreground",
        f"--key-file={key_file}", f"--socket={socket}", f"--pid-file={folder / 'pid'}", f"--log-file={folder / 'log'}",
        f"--seed-file={folder / 'seed'}",
    ]  # fmt: skip
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while not accepts(socket):
            assert process.poll() is None, (folder / "out").read_text()
            assert time.monotonic() < deadline, "munged accepts no connection"
            time.sleep(0.01)
        yield socket, process
    finally:
        process.kill()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)
