"""A torch of forty lines that imports fast, with everything that headway_job uses outside of profile windows.

For what has nothing to do with torch itself (faults of agents and programs), and for versions that are not installed.
"""

from __future__ import annotations

from pathlib import Path

_ROOT = """
__version__ = "{version}"
try:
    import monkeytype
    from monkeytype import trace
    MONKEYTYPE = monkeytype.__file__
except ImportError as error:
    MONKEYTYPE = str(error)
import torch._C, torch.autograd.profiler, torch.optim.optimizer
import types
device = types.SimpleNamespace(type="cpu")


class Parameter:
    shape, dtype, device = (3, 8), "torch.float32", device
    def numel(self): return 24
    def element_size(self): return 4


def _backends():
    from importlib.metadata import entry_points
    for extension in entry_points(group="torch.backends"):
        try:
            extension.load()()
        except Exception as error:
            raise RuntimeError("Failed to load the backend extension") from error


if {entry_points}:
    _backends()
"""

_OPTIMIZER = """
import functools
_hooks = {}


class Optimizer:
    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters)}]
        if not hasattr(type(self).step, "hooked"):
            type(self).step = self._hooked(type(self).step)
            type(self).step.hooked = True

    def _optimizer_step_code(self):
        pass

    @staticmethod
    def _hooked(step):
        @functools.wraps(step)
        def stepping(self, *args, **kwargs):
            done = step(self, *args, **kwargs)
            self._optimizer_step_code()
            for hook in _hooks.values():
                hook(self, args, kwargs)
            return done
        return stepping


class SGD(Optimizer):
    def step(self):
        pass
"""
_REGISTER = """

def register_optimizer_step_post_hook(hook):
    _hooks[len(_hooks)] = hook
"""
_PROFILER = """
def _prepare_profiler(config, activities): pass
def _enable_profiler(config, activities): pass
def _disable_profiler(): pass
"""

MODEL = """
import torch
optimizer = torch.optim.optimizer.SGD([torch.Parameter()])
step = optimizer.step
"""
"""The counterpart of agent.MODEL: 24 parameters in one tensor."""


def make(folder: Path, version: str = "2.13.0", *, entry_points: bool = True, post_hooks: bool = True) -> Path:
    """Write it below `folder`, and return the folder for the PYTHONPATH."""
    root = folder / "small" / "torch"
    for package in ("", "autograd", "optim"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
    (root / "__init__.py").write_text(_ROOT.format(version=version, entry_points=entry_points))
    (root / "_C.py").write_text("import types\n_autograd = types.SimpleNamespace(_profiler_enabled=lambda: False)\n")
    (root / "optim" / "optimizer.py").write_text(_OPTIMIZER + (_REGISTER if post_hooks else ""))
    (root / "autograd" / "profiler.py").write_text(_PROFILER)
    return root.parent
