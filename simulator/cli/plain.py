"""`headway-sim run`, read without typer.

A run of some thousand jobs takes less time than the import of typer. Long options with their values are read here;
everything else, mistakes and --help included, is left to typer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simulator.runs.options import run_flags

_FLAGS = tuple(run_flags())
REQUIRED = (*(flag.name for flag in _FLAGS if flag.required), "policy")
VALUES: dict[str, tuple[str, Callable[[str], object]]] = {
    **{flag.flag: (flag.name, flag.kind) for flag in _FLAGS if not flag.several and flag.kind is not bool},
    "--policy": ("policy", str),
    "--out": ("out", Path),
}
LISTS = {flag.flag: flag.name for flag in _FLAGS if flag.several}
SWITCHES = {**{flag.flag: flag.name for flag in _FLAGS if flag.kind is bool}, "--json": "as_json"}


def plain(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Read the words into values, by the names of `RunOptions` and of `runs.one.run`; None if any word is not plain."""
    found: dict[str, Any] = {}
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in SWITCHES and not equals:
            found[SWITCHES[name]] = True
            continue
        text = value if equals else next(rest, None)
        if text is None or (name not in VALUES and name not in LISTS):
            return None
        if name in LISTS:
            found[LISTS[name]] = (*found.get(LISTS[name], ()), text)
            continue
        parameter, kind = VALUES[name]
        try:
            found[parameter] = kind(text)
        except ValueError:
            return None
    return found if all(name in found for name in REQUIRED) else None
