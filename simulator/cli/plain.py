"""`headway-sim run`, read without typer.

A run of some thousand jobs takes less time than the import of typer does. What is plain (long options, each with its value) is
read here; everything else, mistakes and --help included, is left to typer, which says it better. A test holds the two to
the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

REQUIRED = ("trace", "cluster", "policy")
VALUES: dict[str, tuple[str, Callable[[str], object]]] = {
    "--trace": ("trace", Path),
    "--cluster": ("cluster", str),
    "--policy": ("policy", str),
    "--placement": ("placement", str),
    "--preempt-cost": ("preempt_cost_s", float),
    "--round": ("round_s", float),
    "--seed": ("seed", int),
    "--limit": ("limit", int),
    "--estimates": ("estimates", str),
    "--preemptible-share": ("preemptible_share", float),
    "--checkpoint-interval": ("checkpoint_interval_s", float),
    "--failures": ("failures", str),
    "--profiles": ("profiles", Path),
    "--out": ("out", Path),
}
LISTS = {"--slowdown": "slowdown"}
SWITCHES = {"--json": "as_json", "--drop-impossible": "drop_impossible"}


def plain(arguments: Sequence[str]) -> dict[str, Any] | None:
    """What was given, by the names of `Options` and of the parameters of `running.run`; None where anything is not plain."""
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
