"""Starts headway_job in processes that import torch < 2.5, which has no entry points. This is not MonkeyType.

Every torch from 1.10 on tries to import the module `monkeytype`, and continues without it if there is none. So this file, in a
folder behind that of headway_job on the PYTHONPATH, is loaded by every process that imports torch and by no other. The usual ways
are worse: a .pth file is not read from PYTHONPATH; sitecustomize and usercustomize would run in every Python process of the job,
and replace those of the site and of the user.

If MonkeyType is installed, it is loaded as if this file were not there. Otherwise the import fails, as it would without this file.
The only visible difference: importlib.util.find_spec("monkeytype") finds this file.
"""

import _thread
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading  # noqa: F401 - Python takes the thread that imports it first for the main thread: it must not be ours
import time

_POLL_S = 0.02
_MAX_WAIT_S = 600.0


def _torch_needs_it() -> bool:
    """Return True if a torch without entry points is being imported right now, in a job that is measured."""
    if not os.environ.get("HEADWAY_JOB_SOCKET"):
        return False
    torch = sys.modules.get("torch")
    version = str(getattr(torch, "__version__", "")).split(".")
    return _being_imported() and len(version) > 1 and (int(version[0]), int(version[1])) < (2, 5)


def _being_imported() -> bool:
    return bool(getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False))


def _begin_after_import() -> None:
    """Wait for the end of the import, then begin; in a thread of its own, as this one is importing torch."""
    try:
        deadline_s = time.monotonic() + _MAX_WAIT_S
        while _being_imported() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if "torch" in sys.modules:
            importlib.import_module("headway_job").begin()
    except BaseException:
        # Python would print the traceback into the output of the user's program.
        pass


def _load_monkeytype() -> None:
    """Replace this module by MonkeyType, or raise the error of a missing module."""
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, elsewhere)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


try:
    if _torch_needs_it():
        _thread.start_new_thread(_begin_after_import, ())
except Exception:
    pass
_load_monkeytype()
