"""The dashboards against the models that Grafana Labs generates from Grafana's own schema (the package grafana-foundation-sdk)."""

from __future__ import annotations

import copy
import enum
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.docs.monitoring.exported import DASHBOARDS, NODES, dashboard

pytest.importorskip("grafana_foundation_sdk", reason="no grafana-foundation-sdk here: make setup installs it")
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

plugins.register_default_plugins()
BEYOND = {"definition", "titleFormat"}
"""Keys that Grafana's Prometheus plugin reads and writes, and that are not in the schema."""


def problems(board: dict[str, Any]) -> list[str]:
    """Return the keys that the schema does not know or has otherwise, and the values of a wrong type."""
    model = Dashboard.from_json(copy.deepcopy(board))
    back = json.loads(JSONEncoder().encode(model))
    return [*_lost(board, back, ""), *_mistyped(model, Dashboard, "")]


def _lost(written: Any, back: Any, path: str) -> Iterator[str]:
    """Yield what the models did not take over."""
    if isinstance(written, dict) and isinstance(back, dict):
        for key, value in written.items():
            if key not in BEYOND:
                yield from _lost(value, back[key], f"{path}.{key}") if key in back else [f"{path}.{key}: not known"]
    elif isinstance(written, list) and isinstance(back, list) and len(written) == len(back):
        for number, (one, other) in enumerate(zip(written, back, strict=True)):
            yield from _lost(one, other, f"{path}[{number}]")
    elif written != back:
        yield f"{path}: {written!r} became {back!r}"


def _mistyped(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Yield the places where a value is not of the type that its model states."""
    if not _is(value, hint):
        yield f"{path}: {value!r} is not {hint}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _mistyped(each, Any, f"{path}[{number}]")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models") and not isinstance(value, enum.Enum):
        for name, wanted in _hints(type(value)).items():
            yield from _mistyped(getattr(value, name), wanted, f"{path}.{name}")


def _hints(model: type) -> dict[str, Any]:
    return typing.get_type_hints(model, vars(sys.modules[model.__module__]))


def _is(value: Any, hint: Any) -> bool:
    """Return whether the value has that type. A number without a fraction is one with a fraction too."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if origin in {typing.Union, types.UnionType}:
        return any(_is(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(_is(each, *parts) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is(each, parts[1]) for each in value.values())
    if isinstance(value, bool):
        return hint in {bool, object}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return isinstance(value, hint) or value in {each.value for each in hint}
    return isinstance(value, (int, float) if hint is float else (origin or hint))


@pytest.mark.parametrize("path", [*DASHBOARDS, NODES], ids=lambda path: path.name)
def test_a_dashboard_is_one_by_grafanas_schema(path: Path) -> None:
    assert problems(dashboard(path)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda board: board["panels"][0].update(gridpos={}), "panels[0].gridpos: not known"),
        (lambda board: board["panels"][0]["targets"][0].update(expr=5), "expr: 5 is not"),
        (lambda board: board["panels"][0]["gridPos"].update(w="4"), "w: '4' is not"),
        (lambda board: board["panels"][7]["options"]["tooltip"].update(mode="several"), "mode: 'several' is not"),
        (lambda board: board.update(editable="yes"), "editable: 'yes' is not"),
    ],
)
def test_what_is_wrong_in_a_dashboard_is_found(change: Any, problem: str) -> None:
    board = dashboard(NODES)
    change(board)

    assert [each for each in problems(board) if problem in each], problems(board)
