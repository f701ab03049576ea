"""Optimizer steps that are compiled: torch.compile traces what it finds in them, also our hook.

Usually its graph is broken at our function, which then counts the step each time, and nothing that it calls is compiled. A
program that allows no break (`fullgraph=True`) would be refused because of us. So there our function is left out of the graph,
and its steps are not counted.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import CodeType
from typing import Any, Callable

from ..profiling.not_compiled import not_compiled

Hook = Callable[..., None]
_LEAST_TORCH = (2, 5)
"""Earlier versions lack some of the names, and are left as they are."""


def traceable(after_step: Hook) -> Hook:
    """Return a hook that calls `after_step`, which is not traced, unless it is traced itself and its graph must not break."""
    is_compiling = _is_compiling(sys.modules.get("torch"))
    if is_compiling is None:
        return after_step

    call = after_step

    def hook(optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        if is_compiling() and must_not_break():
            return
        call(optimizer, args, kwargs)

    def must_not_break() -> bool:
        nonlocal call
        if call is after_step:
            call = not_compiled(after_step)
        return _must_not_break(hook.__code__)

    must_not_break._dynamo_marked_constant = True  # type: ignore[attr-defined]  # called when the step is traced, and not later
    return hook


def _is_compiling(torch: Any) -> Any:
    """Return torch's function that says if it traces now; None = this torch is too old."""
    try:
        version = tuple(int(part) for part in str(torch.__version__).split(".")[:2])
    except (AttributeError, ValueError):
        return None
    return getattr(getattr(torch, "compiler", None), "is_compiling", None) if version >= _LEAST_TORCH else None


def _must_not_break(hook: CodeType) -> bool:
    """Return True if an error would follow from a break of the graph that is traced now. Never raises."""
    with suppress(Exception):
        from torch._dynamo.eval_frame import skip_code

        # After a break, Python calls the hook: it needs no graph of its own, of which there would be one for each optimizer.
        skip_code(hook)
    try:
        from torch._dynamo import symbolic_convert

        if symbolic_convert.InstructionTranslator.current_tx().one_graph:
            return True
        inner: Any = getattr(symbolic_convert, "_get_error_on_graph_break", None)
        return inner is not None and bool(inner())
    except Exception:
        return False  # this torch has other names: the graph breaks
