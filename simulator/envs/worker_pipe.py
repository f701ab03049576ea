"""What the two ends of a worker's pipe say to each other.

Most of it is "step" and "done". Such a signal is one byte, and costs both ends together a fifth of what a pickled message
costs; whatever has something to tell goes as a message.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

_SIGNAL, _MESSAGE = b"s", b"m"


class WorkerPipe:
    """One end. Invariant: between two calls the pipe stands before a byte that says what follows.

    When the other end is gone, all methods but `close` raise EOFError or OSError, at once.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def signal(self) -> None:
        """Wake the other end; there is nothing to tell."""
        os.write(self._pipe.fileno(), _SIGNAL)

    def send(self, message: object) -> None:
        """Tell the other end something. What cannot be pickled raises before anything is sent."""
        pickled = pickle.dumps(message)
        os.write(self._pipe.fileno(), _MESSAGE)
        self._pipe.send_bytes(pickled)

    def receive(self) -> Any:
        """Wait for what comes next: a message, or None for a signal."""
        kind = os.read(self._pipe.fileno(), 1)
        if kind == _SIGNAL:
            return None
        if kind == _MESSAGE:
            return self._pipe.recv()
        raise EOFError

    def close(self) -> None:
        """Nothing more comes from here."""
        self._pipe.close()
