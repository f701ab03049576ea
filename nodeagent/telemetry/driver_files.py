"""Reads the files of the GPU driver in a process of its own: a driver that hangs blocks this process, and not the agent.

It writes one line: a JSON object with the N of /dev/nvidiaN for the PCI address of each GPU that the driver has.
"""

from __future__ import annotations

import ctypes
import json
import re
import signal
import sys
from pathlib import Path

from nodeagent.telemetry import sysfs

FILES = "proc/driver/nvidia/gpus"
_PR_SET_PDEATHSIG = 1  # prctl(2)
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,9})", re.MULTILINE)


def main() -> int:
    """Write the line. The argument is the root of the file system."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.stdout.write(json.dumps(read_minors(Path(sys.argv[1]))) + "\n")
    return 0


def read_minors(root: Path) -> dict[str, int]:
    """Return the device minor of each GPU by its PCI address. May hang."""
    found = (
        (folder.name, _MINOR.search(sysfs.text(folder / "information") or "")) for folder in sysfs.folders(root / FILES)
    )
    return {address: int(minor[1]) for address, minor in found if minor}


if __name__ == "__main__":
    sys.exit(main())
