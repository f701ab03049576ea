"""Files and texts of others are read within bounds, and refused with a short printable message."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from policies.documents import DocumentError, is_number, is_whole, parse_json, parse_toml, read_text, short


def test_documents_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('a.b."c d".e = 1.5\n')
    assert parse_toml(read_text(tmp_path / "a.toml")) == {"a": {"b": {"c d": {"e": 1.5}}}}
    assert parse_json('{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        "a = " + "9" * 5000,
        "a = = b",
        ".".join("a" * 20_000) + " = 1",
        "[" + "a." * 20_000 + "b]",
    ],
    ids=["nesting", "digits", "grammar", "dots", "dots of a table"],
)
def test_invalid_toml_is_refused_at_once(text: str) -> None:
    begun_s = time.process_time()
    with pytest.raises(DocumentError) as caught:
        parse_toml(text)
    assert time.process_time() - begun_s < 2
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "{", '{"a":' * 50_000])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        parse_json(text)


def test_numbers_and_texts_with_many_dots_are_no_names() -> None:
    numbers = ", ".join(f"{number}.5" for number in range(200))
    assert len(parse_toml(f"a = [{numbers}]")["a"]) == 200
    assert parse_toml('a = "1. 2. 3."')["a"] == "1. 2. 3."


def test_only_regular_files_of_a_limited_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="not a regular file"):
        read_text(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * 101)
    with pytest.raises(DocumentError, match="more than 100 bytes"):
        read_text(tmp_path / "long", 100)
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(DocumentError, match="not UTF-8"):
        read_text(tmp_path / "bytes")
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none")


def test_numbers_of_others_are_checked_whatever_their_size() -> None:
    huge = parse_json("9" * 400)
    assert [is_number(each) for each in (0, -1.5, 1e308, 1 << 62)] == [True] * 4
    for value in (huge, -huge, parse_json("1e999"), parse_json("NaN"), True, None, "1"):
        assert not is_number(value)
    assert is_number(3, 0.0, 3.0)
    assert not is_number(huge, 0.0)
    assert is_whole(3, 1, 3)
    for value in (0, 4, huge, 3.0, True, "3"):
        assert not is_whole(value, 1, 3)


def test_text_of_others_is_shown_as_one_printable_line() -> None:
    assert short("a\x1b[2J\n\ud800b") == "a?[2J??b"
    assert len(short("x" * 10_000)) < 310
