"""Steps aside for the program's own profiler: torch allows one.

torch.profiler and torch.autograd.profiler reach the profiler through three names of the module torch.autograd.profiler. They
are replaced by functions that do the same and tell us first; a window of ours that is open ends there and is forgotten.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Optional

_ENTERING = ("_prepare_profiler", "_enable_profiler")
_LEAVING = "_disable_profiler"


class Guard:
    """Whether the program's own profiler is prepared or runs."""

    def __init__(self) -> None:
        self.busy = False
        self.give_way: Optional[Callable[[], None]] = None
        """Called before the program's profiler gets ready; must not raise."""

    def install(self) -> None:
        """Once, before the program can have begun to profile."""
        module = sys.modules["torch.autograd.profiler"]
        for name in _ENTERING:
            setattr(module, name, self._before(getattr(module, name)))
        setattr(module, _LEAVING, self._after(getattr(module, _LEAVING)))

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def entering(*args: Any, **kwargs: Any) -> Any:
            self.busy = True
            if self.give_way is not None:
                self.give_way()
            return call(*args, **kwargs)

        return entering

    def _after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def leaving(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                self.busy = False

        return leaving
