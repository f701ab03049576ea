"""Gives precedence to the program's own profiler, as torch allows one at a time; and avoids what CUPTI cannot do.

torch.profiler and torch.autograd.profiler reach the profiler through three names of the module torch.autograd.profiler. They are
replaced by functions that do the same and inform us first. An open window of ours then ends, and its result is dropped.

CUDAGraph.capture_begin is replaced in the same way. GPU kernels are recorded through CUPTI, which only one tool of a process can
use. Some versions of CUDA crash at the replay of a CUDA graph if CUPTI was stopped after the capture; torch.profiler never stops it
in such a program.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Optional

_STARTING = ("_prepare_profiler", "_enable_profiler")
_STOPPING = "_disable_profiler"
_TOOL_VARIABLES = ("NSYS_", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""Beginnings of variables that are set when Nsight Systems, or another library that CUDA loads, traces the process."""
_TOOL_LIBRARIES = (b"ToolsInjection", b"cuda-injection", b"InjectionTarget")
"""Parts of the names of the libraries that Nsight Systems and Nsight Compute load into a process. torch itself loads CUPTI, so that
library is no sign of a tool."""

PROGRAM, GRAPH, TOOL, BUSY, TORCH = "program", "graph", "tool", "busy", "torch"
"""Reasons why no profile is taken, as in the agent's frame: the program's own profiler; a captured CUDA graph; another tool; the
profiler is in use, or the program forks, whenever a window would begin; torch's profiler cannot be used as it is."""


class ProfilerGuard:
    """Says when no window may be opened: while the program's own profiler runs, or when CUPTI belongs to something else."""

    def __init__(self, on_program_profiler: Optional[Callable[[], None]] = None) -> None:
        """`on_program_profiler` is called before the program's profiler starts. It must not raise."""
        self.active = False
        """The program's own profiler is prepared or runs."""
        self.captured_graph = False
        """The program has captured a CUDA graph."""
        self._on_program_profiler = on_program_profiler

    def why_no_window(self) -> str:
        """Return the reason why no window may be opened now; empty = one may be."""
        if self.active:
            return PROGRAM
        if self.captured_graph:
            return GRAPH
        return TOOL if _is_traced() else ""

    def forget_callback(self) -> None:
        """Call nothing any more, as in a forked child."""
        self._on_program_profiler = None

    def install(self) -> None:
        """Replace torch's functions. Call it once, before the program can have started to profile."""
        module = sys.modules["torch.autograd.profiler"]
        for name in _STARTING:
            setattr(module, name, self._before_start(getattr(module, name)))
        setattr(module, _STOPPING, self._after_stop(getattr(module, _STOPPING)))
        graph: Any = getattr(sys.modules.get("torch.cuda.graphs"), "CUDAGraph", None)
        if hasattr(graph, "capture_begin"):
            graph.capture_begin = self._before_capture(graph.capture_begin)

    def _before_start(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def starting(*args: Any, **kwargs: Any) -> Any:
            self.active = True
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

    def _after_stop(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def stopping(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                self.active = False

        return stopping


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
