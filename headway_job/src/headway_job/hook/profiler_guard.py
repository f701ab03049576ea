"""Steps aside for the program's own profiler, of which torch allows one, and for what CUPTI does not get on with.

torch.profiler and torch.autograd.profiler reach the profiler through three names of the module torch.autograd.profiler. They
are replaced by functions that do the same and tell us first; a window of ours that is open ends there and is forgotten.

So is CUDAGraph.capture_begin. GPU kernels are recorded through CUPTI, which one tool of a process can have, and whose ending after
a CUDA graph was captured makes some versions of CUDA crash at the graph's replay; torch.profiler never ends it in such a program.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Optional

_ENTERING = ("_prepare_profiler", "_enable_profiler")
_LEAVING = "_disable_profiler"
_TOOLS = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH")
"""Set where Nsight Systems, or another library that CUDA loads, traces the process."""


class Guard:
    """Whether a window may be opened: not while the program's own profiler is prepared or runs, nor where CUPTI is not ours."""

    def __init__(self) -> None:
        self.busy = False
        self.graphs = False
        """The program has captured a CUDA graph."""
        self.give_way: Optional[Callable[[], None]] = None
        """Called before the program's profiler gets ready; must not raise."""

    @property
    def in_the_way(self) -> bool:
        """Whether no window may be opened now."""
        return self.busy or self.graphs or any(os.environ.get(name) for name in _TOOLS)

    def install(self) -> None:
        """Once, before the program can have begun to profile."""
        module = sys.modules["torch.autograd.profiler"]
        for name in _ENTERING:
            setattr(module, name, self._before(getattr(module, name)))
        setattr(module, _LEAVING, self._after(getattr(module, _LEAVING)))
        graph: Any = getattr(sys.modules.get("torch.cuda.graphs"), "CUDAGraph", None)
        if hasattr(graph, "capture_begin"):
            graph.capture_begin = self._capturing(graph.capture_begin)

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def entering(*args: Any, **kwargs: Any) -> Any:
            self.busy = True
            if self.give_way is not None:
                self.give_way()
            return call(*args, **kwargs)

        return entering

    def _capturing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            self.graphs = True
            if self.give_way is not None:
                self.give_way()
            return call(*args, **kwargs)

        return capture_begin

    def _after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def leaving(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                self.busy = False

        return leaving
