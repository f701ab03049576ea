"""A process on each node that has loaded torch, and forks a rank for each request: `warm.py SOCKET`.

Loading torch costs some seconds of a core, and the nodes share a few cores: dozens of ranks that load it would slow each
other down, which the GPU machines they stand for would not. A rank is a process of its own all the same, in the node's namespaces,
with sockets and threads of its own; it ends with the Slurm task that requested it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

import torch._dynamo  # noqa: F401 - DDP loads it when it is made
from train import Place, Plan, train  # type: ignore[import-not-found]


def main() -> None:
    """Listen, then go into the background: when this command ends, ranks can be requested."""
    path = sys.argv[1]
    os.umask(0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    if os.fork():
        os._exit(0)
    os.setsid()
    _redirect(Path(path).with_suffix(".log"))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ranks that have ended
    gc.freeze()
    while True:
        asked, _ = listener.accept()
        if not os.fork():
            listener.close()
            _serve(asked)
        asked.close()


def _redirect(log: Path) -> None:
    for descriptor, name, flags in (
        (0, "/dev/null", os.O_RDONLY),
        (1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)


def _serve(asked: socket.socket) -> None:
    """Run the rank, and exit. The request is one line of JSON, with the task's output as a descriptor."""
    try:
        text, descriptors, _, _ = socket.recv_fds(asked, 65536, 1)
        os.dup2(descriptors[0], 1)
        os.dup2(descriptors[0], 2)
        request = json.loads(text)
        os.environ["GLOO_SOCKET_IFNAME"] = request["interface"]
        threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
        train(Plan(**request["plan"]), Place(**request["place"]))
        asked.sendall(b"0")
    except BaseException:  # noqa: BLE001 - whatever it was, the task's log is where it belongs
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(0)


def _end_with(asked: socket.socket) -> None:
    """End the rank when its task is gone (cancelled, out of time)."""
    asked.recv(1)
    os._exit(1)


if __name__ == "__main__":
    main()
