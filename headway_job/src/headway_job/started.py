"""How the program was started: its folder and its arguments, as it may change both later."""

from __future__ import annotations

import os
import sys
from typing import List


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


_FOLDER = _current_folder()
ARGUMENTS: List[str] = [str(each) for each in getattr(sys, "argv", None) or [""]]
"""Path of the script, and its arguments."""


def folder() -> str:
    """Return the folder in which the program was started, also in the processes that it starts; empty = it is gone."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        return str(processes.ORIGINAL_DIR or "")
    return _FOLDER
