"""Gives precedence to the program's own profiler, as torch allows one at a time; and avoids what CUPTI cannot do.

torch.profiler and torch.autograd.profiler reach the profiler through names of the module torch.autograd.profiler. They are replaced
by functions that do the same and inform us first. An open window of ours then ends, and its result is dropped. No window is opened
later either: an annotation (torch.profiler.record_function) that the program has begun under its own profiler may end at any time,
and within a window its end would be written into memory that torch has freed with the program's recording.

CUDAGraph.capture_begin is replaced in the same way. GPU kernels are recorded through CUPTI, which only one tool of a process can
use. Some versions of CUDA crash at the replay of a CUDA graph if CUPTI was stopped after the capture; torch.profiler never stops it
in such a program.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Optional

_STARTING = {
    "torch.autograd.profiler": ("_prepare_profiler", "_enable_profiler"),
    "torch.autograd.profiler_legacy": ("_enable_profiler_legacy",),
    "torch.autograd": ("_enable_profiler_legacy",),
}
"""Names by module. The older profiler is imported by torch itself, or takes its names from torch.autograd later."""
_TOOL_VARIABLES = ("NSYS_", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""Beginnings of variables that are set when Nsight Systems, or another library that CUDA loads, traces the process."""
_TOOL_LIBRARIES = (b"ToolsInjection", b"cuda-injection", b"InjectionTarget")
"""Parts of the names of the libraries that Nsight Systems and Nsight Compute load into a process. torch itself loads CUPTI, so that
library is no sign of a tool."""

PROGRAM, GRAPH, TOOL, BUSY, TORCH = "program", "graph", "tool", "busy", "torch"
"""Reasons why no profile is taken, as in the agent's frame: the program's own profiler; a captured CUDA graph; another tool; the
profiler is in use, or the program forks, whenever a window would begin; torch's profiler cannot be used as it is."""


class ProfilerGuard:
    """Says when no window may be opened: once the program's own profiler has run, or when CUPTI belongs to something else."""

    def __init__(self, on_program_profiler: Optional[Callable[[], None]] = None) -> None:
        """`on_program_profiler` is called before the program's profiler starts. It must not raise."""
        self.has_profiled = False
        """The program's own profiler is prepared, runs or has run."""
        self.captured_graph = False
        """The program has captured a CUDA graph."""
        self._on_program_profiler = on_program_profiler

    def why_no_window(self) -> str:
        """Return the reason why no window may be opened now; empty = one may be."""
        if self.has_profiled:
            return PROGRAM
        if self.captured_graph:
            return GRAPH
        return TOOL if _is_traced() else ""

    def forget_callback(self) -> None:
        """Call nothing any more, as in a forked child."""
        self._on_program_profiler = None

    def install(self) -> None:
        """Replace torch's functions. Call it once, before the program can have started to profile."""
        for module_name, names in _STARTING.items():
            module = sys.modules.get(module_name)
            for name in names:
                if hasattr(module, name):
                    setattr(module, name, self._before_start(getattr(module, name)))
        graph: Any = getattr(sys.modules.get("torch.cuda.graphs"), "CUDAGraph", None)
        if hasattr(graph, "capture_begin"):
            graph.capture_begin = self._before_capture(graph.capture_begin)

    def _before_start(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def starting(*args: Any, **kwargs: Any) -> Any:
            self.has_profiled = True
            if self._on_program_profiler is not None:
                self._on_program_profiler()
            return call(*args, **kwargs)

        return starting

    def _before_capture(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            self.captured_graph = True
            if self._on_program_profiler is not None:
                self._on_program_profiler()
            return call(*args, **kwargs)

        return capture_begin


def _is_traced() -> bool:
    """Return True if another tool traces this process: it was started with one, or one was attached later."""
    if any(name.startswith(_TOOL_VARIABLES) and value for name, value in os.environ.items()):
        return True
    try:
        with open("/proc/self/maps", "rb") as file:
            libraries = file.read()
    except OSError:
        return False
    return any(name in libraries for name in _TOOL_LIBRARIES)
