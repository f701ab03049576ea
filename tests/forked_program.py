"""The end of a process that a server of the tests has forked to be a program."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


def be_program(body: Callable[[], object]) -> NoReturn:
    """Run the program, and end as a program does, with the exit status that `body` returns (None: 0) or raises by SystemExit.

    What the server had loaded is not freed object by object.
    """
    code: Any = 1
    try:
        code = body()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - a program that ends so prints it
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
