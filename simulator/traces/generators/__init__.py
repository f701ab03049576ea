"""Workloads of the papers, drawn from their distributions: one module per paper, with its parameters and `generate`.
Imports `errors`, `traces/load` and `traces/trace`; of other packages `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from importlib import import_module
from typing import Any

import numpy as np

from simulator.errors import TraceError
from simulator.traces.generators.workload import Workload, by_hours, nanoseconds, without_hours
from simulator.traces.load import at_load, check_load, offered_load
from simulator.traces.trace import NS_PER_S, Trace

_PARAMETERS = {
    "contention-rl": "ContentionRL",
    "sched2": "Sched2",
    "dl2": "DL2",
    "rl-taps": "RLTaps",
    "marl": "Marl",
    "philly": "Philly",
}
GENERATORS = tuple(_PARAMETERS)


def parameters_of(like: str) -> type[Workload]:
    """Return the parameters of one of `GENERATORS`. Raises TraceError."""
    if like not in _PARAMETERS:
        raise TraceError(f"there is no generator {like!r}", mend=f"give one of {', '.join(GENERATORS)}")
    parameters: type[Workload] = getattr(_module(like), _PARAMETERS[like])
    return parameters


def generate(like: str, workload: Workload | None = None) -> Trace:
    """Generate the jobs of a workload; its defaults are the paper's. Raises TraceError."""
    parameters = parameters_of(like)
    make: Callable[[Any], Trace] = _module(like).generate
    return make(parameters() if workload is None else workload)  # type: ignore[call-arg] # every generator gives the defaults


def with_exact_load(workload: Workload, trace: Trace) -> Trace:
    """Return the trace of that workload with exactly its load; the draws alone give it in the mean over seeds. Raises TraceError.

    Submissions move closer together or farther apart; those that follow the hours of a day still do.
    """
    load, gpus = workload.load, workload.cluster_gpus
    if load is None:
        return trace
    found = offered_load(trace, gpus)
    if workload.arrivals != "daily" or found.load is None:
        return at_load(trace, gpus, load)
    even_s = without_hours(trace.submit_ns / NS_PER_S)
    scale = without_hours(np.array([found.span_s * found.load / load]))[0] / even_s[-1]
    moved = replace(trace, submit_ns=nanoseconds(by_hours(even_s * scale)))
    check_load(moved, gpus, load)
    return moved


def from_text(like: str, texts: Mapping[str, str]) -> Workload:
    """Parse parameters by name: numbers, words, and several numbers between slashes. Raises TraceError."""
    parameters = parameters_of(like)
    known = {each.name: each for each in fields(parameters)}
    values: dict[str, object] = {}
    for name, text in texts.items():
        if name not in known:
            raise TraceError(f"{like} has no parameter {name!r}", mend=f"give one of {', '.join(known)}")
        default = known[name].default
        try:
            values[name] = _value(text, 0.0 if default in (MISSING, None) else default)
        except ValueError:
            raise TraceError(
                f"{name} cannot be {text!r}", mend=f"give something like {name}={_shown(default)}"
            ) from None
    return parameters(**values)  # type: ignore[arg-type] # checked by the fields' defaults


def _value(text: str, like: object) -> object:
    if isinstance(like, tuple):
        return tuple(int(part) for part in text.split("/"))
    if isinstance(like, int):
        return int(text)
    return float(text) if isinstance(like, float) else text


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return "/".join(map(str, default))
    return "0.8" if default in (MISSING, None) else str(default)


def _module(like: str) -> Any:
    return import_module(f"simulator.traces.generators.{like.replace('-', '_')}")
