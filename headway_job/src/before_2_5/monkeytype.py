"""Not MonkeyType: the door through which headway_job gets into torch < 2.5, which asks nobody at the end of its import.

Every torch from 1.10 on tries to import the module `monkeytype`, and goes on without it where there is none. So this folder,
behind headway_job's on the PYTHONPATH, is looked into by every process that imports torch and by no other. The usual ways in
are worse: a .pth file is not read from PYTHONPATH; sitecustomize and usercustomize would run in every Python of the job, and
take the place of the site's and the user's own.

Where MonkeyType is installed it is loaded from where it is, as if this file were not there; else the import fails, as it
would without this file. What is seen of it: importlib.util.find_spec("monkeytype") finds this file.
"""

import _thread
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading  # noqa: F401 - whichever thread imports it first is the main thread to Python: not ours
import time

_LOOK_EVERY_S = 0.02
_LONGEST_S = 600.0


def _torch_asks() -> bool:
    """Whether a torch that has no entry points is being imported right now, in a job that is measured."""
    if not os.environ.get("HEADWAY_JOB_SOCKET"):
        return False
    torch = sys.modules.get("torch")
    version = str(getattr(torch, "__version__", "")).split(".")
    return _being_imported() and len(version) > 1 and (int(version[0]), int(version[1])) < (2, 5)


def _being_imported() -> bool:
    return bool(getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False))


def _begin_afterwards() -> None:
    """In a thread of its own, as the importing one is busy with it."""
    try:
        given_up_s = time.monotonic() + _LONGEST_S
        while _being_imported() and time.monotonic() < given_up_s:
            time.sleep(_LOOK_EVERY_S)
        if "torch" in sys.modules:
            importlib.import_module("headway_job").begin()
    except BaseException:
        # Python would print it.
        pass


def _real() -> None:
    """Puts MonkeyType in the place of this module, or raises what is raised where there is none."""
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, elsewhere)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


try:
    if _torch_asks():
        _thread.start_new_thread(_begin_afterwards, ())
except Exception:
    pass
_real()
