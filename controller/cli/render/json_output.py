"""Output of `headway --json`: one object on one line, with the field names of the .proto files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """Return a message as a dictionary with the field names of the .proto file.

    Every field is in it, numbers are numbers, and a field without a value is None. So are NaN and infinity: JSON has none.
    """
    found: dict[str, Any] = {}
    for item in message.DESCRIPTOR.fields:
        value = getattr(message, item.name)
        if item.has_presence and not message.HasField(item.name):
            found[item.name] = None
        elif item.message_type is None:
            found[item.name] = [_finite(entry) for entry in value] if item.is_repeated else _finite(value)
        elif item.message_type.GetOptions().map_entry:
            found[item.name] = {key: _finite(entry) for key, entry in value.items()}
        elif item.is_repeated:
            found[item.name] = [plain(entry) for entry in value]
        else:
            found[item.name] = plain(value)
    return found


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def write_json(value: Mapping[str, Any]) -> None:
    """Print one object on one line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
