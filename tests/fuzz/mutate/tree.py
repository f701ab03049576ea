"""Changes of trees, which JSON, TOML and msgpack write: a value of another type, a new or a missing key, a later version."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgpack

from tests.fuzz.mutate.raw import Mutator

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 99, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**12, 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "\0", "\x1b[2J", "٣", "NaN", "-1", "a" * 300, "../../x"),
    *([], {}, [[]], [None], {"": 0}, [0] * 2000, {"a": {"b": {}}}),
)
_JSON_ONLY: tuple[Any, ...] = (10**30, 10**400, "\ud800")
_PACKED_ONLY: tuple[Any, ...] = (b"", b"\xff" * 40)
_MOST_NODES = 5000


def json_value(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Change one value or key of a JSON document."""
    return _changed(dice, data, json.loads, lambda tree: json.dumps(tree).encode(), _VALUES + _JSON_ONLY)


def msgpack_value(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Change one value or key of a msgpack value."""
    return _changed(dice, data, _unpack, msgpack.packb, _VALUES + _PACKED_ONLY)


JSON: tuple[Mutator, ...] = (json_value,)
MSGPACK: tuple[Mutator, ...] = (msgpack_value,)


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, raw=False, strict_map_key=False)


def _changed(
    dice: Random, data: bytes, read: Callable[[bytes], Any], write: Callable[[Any], bytes], values: Sequence[Any]
) -> bytes:
    try:
        root = [read(data)]
        holder, key = dice.choice(_places(root))
        _change(dice, holder, key, values)
        return write(root[0]) if root else b""
    except (ValueError, TypeError, OverflowError, RecursionError, KeyError):
        return data


def _change(dice: Random, holder: Any, key: Any, values: Sequence[Any]) -> None:
    match dice.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[dice.choice(("a_key_to_come", "", "format", "version", "v", "\0"))] = holder[key]
        case 2:
            deep: Any = holder[key]
            for _ in range(dice.choice((1, 10, 300, 900))):
                deep = [deep] if dice.random() < 0.5 else {"a": deep}
            holder[key] = deep
        case 3 if isinstance(holder[key], list):
            holder[key] = holder[key] * dice.choice((2, 1000))
        case _:
            holder[key] = dice.choice(values)


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Return holder and key of every value."""
    found: list[tuple[Any, Any]] = []
    waiting: list[Any] = [root]
    while waiting and len(found) < _MOST_NODES:
        holder = waiting.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found
