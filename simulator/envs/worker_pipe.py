"""The protocol between a worker process and its owner.

Most messages are "step" and "done". These are signals of one byte, which cost both ends together a fifth of a pickled message;
everything else is a pickled message.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

_SIGNAL, _MESSAGE = b"s", b"m"


class WorkerPipe:
    """One end of the pipe. Invariant: between two calls, the next byte to read gives the kind of what follows.

    When the other end has closed, all methods but `close` raise EOFError or OSError at once.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def signal(self) -> None:
        """Send a signal."""
        os.write(self._pipe.fileno(), _SIGNAL)

    def send(self, message: object) -> None:
        """Send a message. An object that cannot be pickled raises before anything is sent."""
        pickled = pickle.dumps(message)
        os.write(self._pipe.fileno(), _MESSAGE)
        self._pipe.send_bytes(pickled)

    def receive(self) -> Any:
        """Wait for the next message and return it; None for a signal."""
        kind = os.read(self._pipe.fileno(), 1)
        if kind == _SIGNAL:
            return None
        if kind == _MESSAGE:
            return self._pipe.recv()
        raise EOFError

    def close(self) -> None:
        """Close this end."""
        self._pipe.close()
