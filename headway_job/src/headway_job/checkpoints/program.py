"""The program to which a run belongs: its script, its arguments, and the folder in which it was started.

Programs of one script with other arguments, such as those of a sweep in one batch script, are trainings of their own. A job that is
started again has the same arguments, except for those that name its nodes, ports or times.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import List, Mapping, NamedTuple, Sequence

from .. import started

_DIGEST_BYTES = 4
_HOSTS = frozenset(["ipykernel_launcher.py", "colab_kernel_launcher.py", "default_worker.py"])
"""Scripts of Jupyter and Ray that run the code of others. Their arguments name ports and files, which each process has anew."""


class Program(NamedTuple):
    """A program, in one start of its job."""

    digest: str
    """Digest of script, arguments and folder, in hexadecimal."""
    start: str
    """The job and the number of its start; outside of Slurm always the same."""


def number_of_this() -> int:
    """Return the digest of this program as a number: ranks exchange numbers only.

    It has the arguments with which the program was started, and the current ones, as some programs change them and others are
    called by a launcher in the same process.
    """
    folder = started.folder()
    now = [str(each) for each in getattr(sys, "argv", None) or [""]]
    text = repr((folder, *(_command(argv, folder) for argv in (started.ARGUMENTS, now))))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:_DIGEST_BYTES], "big")


def _command(argv: Sequence[str], folder: str) -> List[str]:
    """Return the path of the script, and its arguments, unless they are those of a host."""
    script, *arguments = argv
    return [os.path.join(folder, script), *([] if os.path.basename(script) in _HOSTS else arguments)]


def numbered(number: int, env: Mapping[str, str]) -> Program:
    """Return the program with that number, in this start of the job."""
    start = f"{env.get('SLURM_JOB_ID') or 'none'}.{env.get('SLURM_RESTART_COUNT') or '0'}"
    return Program(f"{number:0{2 * _DIGEST_BYTES}x}", "".join(sign if sign.isalnum() else "." for sign in start))
