"""Unpack one msgpack map from an untrusted packet, with less work than the packet is long.

msgpack unpacks and msgspec checks the fields: msgspec's own decoder is faster still, but it takes the last of two equal keys
and skips unread what it does not know.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgpack

from nodeagent.errors import FrameError

MAX_ENTRIES = 1024
"""Maps and their entries in one packet, added up: four times what the largest valid frame has."""


def unpack_map(packet: bytes) -> dict[str, Any]:
    """Return the map that fills the packet, its texts made printable. Raises FrameError."""
    try:
        value = msgpack.unpackb(
            packet,
            raw=False,
            strict_map_key=True,
            object_pairs_hook=_MapBuilder().build,
            ext_hook=_refuse_extension,
            max_map_len=MAX_ENTRIES,
            max_array_len=MAX_ENTRIES,  # room is made for what a list announces, before its entries are there
        )
    except FrameError:
        raise
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors are ValueErrors
        raise FrameError(f"not msgpack: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise FrameError("not a map")
    return value


class _MapBuilder:
    """Builds the maps of one packet and limits their number: 65,000 empty maps in one packet would take 50 ms."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = 0

    def build(self, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        """Raises FrameError for a key that is not text or occurs twice, and for too many entries in the packet."""
        self._entries += 1 + len(pairs)
        if self._entries > MAX_ENTRIES:
            raise FrameError(f"maps with more than {MAX_ENTRIES} entries")
        built: dict[str, Any] = {}
        for key, value in pairs:
            if not isinstance(key, str):
                raise FrameError("a key is not text")
            if key in built:
                raise FrameError("a key occurs twice")
            built[key] = _printable(value) if type(value) is str else value
        return built


def _printable(text: str) -> str:
    """Replace control characters, which must not reach the log."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def _refuse_extension(_code: int, _data: bytes) -> NoReturn:
    raise FrameError("msgpack extensions are not used")
