"""The file of the CA that signed the controller's certificate."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MAX_BYTES = 1 << 20
"""The CAs of a whole distribution take a quarter of this."""


def read_ca_file(path: Path) -> bytes:
    """Return the content of a regular file of at most 1 MiB. Raises OSError, for other files too: a pipe could hang for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would wait for a writer
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MAX_BYTES:
        raise OSError(errno.EFBIG, "larger than 1 MiB", str(path))
    return content
