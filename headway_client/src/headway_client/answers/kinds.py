"""Kinds of fields: how a value is written, how it is read, and its default."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, Callable

from headway_client.errors import InvalidRequestError, ProtocolError
from headway_client.wire.protobuf import BYTES, FIXED64, VARINT, double, field, fields, to_double
from headway_client.words import Word


class Kind:
    """A kind of field. Subclasses say how one value is read and written; here a later value replaces an earlier one."""

    wire_type = BYTES
    hashable = True

    def default(self) -> Any:
        """Return the value of a field that was left out."""
        raise NotImplementedError

    def read(self, raw: Any) -> Any:
        """Return the value of one field on the wire. Raises ProtocolError."""
        raise NotImplementedError

    def write(self, value: Any, name: str) -> Any:
        """Return a value as it stands on the wire. Raises InvalidRequestError with the field's name."""
        raise NotImplementedError

    def add(self, _before: Any, raw: Any) -> Any:
        """Return what has been collected of the field, with one more value on the wire."""
        return self.read(raw)

    def finish(self, collected: Any) -> Any:
        """Return the field's value, from what `add` has collected."""
        return collected

    def encode(self, value: Any, name: str) -> Iterable[Any]:
        """Yield the field as it stands on the wire: nothing for a default."""
        if value != self.default():
            yield self.write(value, name)


class Number(Kind):
    """A whole number from 0 to below 2 ** bits."""

    wire_type = VARINT

    def __init__(self, bits: int) -> None:
        self._end = 1 << bits

    def default(self) -> int:
        return 0

    def read(self, raw: int) -> int:
        return raw % self._end

    def write(self, value: Any, name: str) -> int:
        whole = hasattr(value, "__index__") and not isinstance(value, bool)  # the numbers of other libraries too
        if not whole or not 0 <= index(value) < self._end:
            raise InvalidRequestError(f"{name}: {value!r} is not a whole number from 0 to {self._end - 1}")
        return index(value)


class Flag(Kind):
    """True or false."""

    wire_type = VARINT

    def default(self) -> bool:
        return False

    def read(self, raw: int) -> bool:
        return raw != 0

    def write(self, value: Any, name: str) -> int:
        if not isinstance(value, bool):
            raise InvalidRequestError(f"{name}: {value!r} is neither True nor False")
        return int(value)


class Real(Kind):
    """A floating-point number."""

    wire_type = FIXED64

    def default(self) -> float:
        return 0.0

    def read(self, raw: bytes) -> float:
        return to_double(raw)

    def write(self, value: Any, name: str) -> bytes:
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
            raise InvalidRequestError(f"{name}: {value!r} is not a number")
        return double(float(value))


class Text(Kind):
    """A text, or one of the words of an open enumeration."""

    def __init__(self, word: type[Word] | None = None) -> None:
        self._make: Callable[[str], str] = str if word is None else word

    def default(self) -> str:
        return self._make("")

    def read(self, raw: bytes) -> str:
        try:
            return self._make(raw.decode())
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the answer is damaged: a text is not UTF-8 ({error})") from None

    def write(self, value: Any, name: str) -> bytes:
        if not isinstance(value, str):
            raise InvalidRequestError(f"{name}: {value!r} is not a text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"{name}: {value!r} cannot be written as UTF-8 ({error.reason})") from None


class Sub(Kind):
    """A message inside another."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def default(self) -> Any:
        return self._message()

    def read(self, raw: bytes) -> Any:
        return self._message.decode(raw)

    def write(self, value: Any, name: str) -> bytes:
        encoded: bytes = value.encode()
        return encoded


class Maybe(Kind):
    """A value that may be missing: then it is None."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.wire_type = kind.wire_type

    def default(self) -> None:
        return None

    def read(self, raw: Any) -> Any:
        return self._kind.read(raw)

    def write(self, value: Any, name: str) -> Any:
        return self._kind.write(value, name)


class Many(Kind):
    """Any number of values, as a tuple."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.wire_type = kind.wire_type

    def default(self) -> Any:
        return ()

    def add(self, before: Any, raw: Any) -> Any:
        found = [] if before is None else before
        found.append(self._kind.read(raw))
        return found

    def finish(self, collected: Any) -> Any:
        return tuple(collected)

    def encode(self, value: Any, name: str) -> Iterable[Any]:
        return (self._kind.write(each, name) for each in value)


class Table(Kind):
    """Values by text."""

    hashable = False

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def default(self) -> dict[str, Any]:
        return {}

    def add(self, before: Any, raw: Any) -> Any:
        found, key, value = before or {}, "", self._kind.default()
        for number, wire_type, part in fields(raw):
            if (number, wire_type) == (1, BYTES):
                key = Text().read(part)  # type: ignore[arg-type]
            elif (number, wire_type) == (2, self._kind.wire_type):
                value = self._kind.read(part)
        found[key] = value
        return found

    def encode(self, value: Any, name: str) -> Iterable[bytes]:
        for key, each in value.items():
            written = self._kind.write(each, f"{name}[{key!r}]")
            yield field(1, BYTES, Text().write(key, name)) + field(2, self._kind.wire_type, written)
