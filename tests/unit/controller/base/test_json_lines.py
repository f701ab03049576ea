"""Files of JSON lines: bounded, repaired after a line that was written in part, and silent about a full disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from controller.base.json_lines import JsonLines


def lines_in(path: Path, max_bytes: int = 1000, files: int = 3) -> JsonLines:
    return JsonLines(path, max_bytes=max_bytes, files=files, mode=0o640)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_object_is_one_line_and_is_read_again(tmp_path: Path) -> None:
    lines = lines_in(tmp_path / "a.jsonl")
    for value in ({"a": "x\ny\r"}, {"b": "ü\ud800"}):
        lines.append(value)
    assert list(lines_in(tmp_path / "a.jsonl").read()) == [{"a": "x\ny\r"}, {"b": "ü\ud800"}]
    assert (tmp_path / "a.jsonl").read_bytes().count(b"\n") == 2


def test_a_new_file_has_its_mode_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lines_in(tmp_path / "a.jsonl").append({})
    finally:
        os.umask(before)
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o640


def test_the_files_are_bounded_and_the_newest_lines_stay(tmp_path: Path) -> None:
    lines = lines_in(tmp_path / "a.jsonl", max_bytes=100, files=3)
    for number in range(200):
        lines.append({"n": number})
    assert names_in(tmp_path) == ["a.jsonl", "a.jsonl.1", "a.jsonl.2"]
    assert all((tmp_path / name).stat().st_size <= 100 for name in names_in(tmp_path))
    numbers = [value["n"] for value in lines.read()]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 10


def test_one_file_alone_begins_anew(tmp_path: Path) -> None:
    lines = lines_in(tmp_path / "a.jsonl", max_bytes=30, files=1)
    for number in range(10):
        lines.append({"n": number})
    assert names_in(tmp_path) == ["a.jsonl"]
    assert [value["n"] for value in lines.read()][-1] == 9


def test_a_line_that_was_written_in_part_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = lines_in(path)
    lines.append({"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "te')
    lines.append({"n": 3})
    assert list(lines.read()) == [{"n": 1}, {"n": 3}]


def test_a_file_that_another_program_moved_is_made_again(tmp_path: Path) -> None:
    lines = lines_in(tmp_path / "a.jsonl")
    lines.append({"n": 1})
    (tmp_path / "a.jsonl").rename(tmp_path / "moved")
    lines.append({"n": 2})
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"n": 2}


def test_a_full_disk_is_a_problem_until_there_is_space(tmp_path: Path) -> None:
    lines = lines_in(Path("/dev/full"))
    lines.append({"n": 1})
    assert lines.problem == "not a regular file"
    # and the same for a folder that is not there
    lines = lines_in(tmp_path / "sub" / "a.jsonl")
    lines.append({"n": 1})
    assert lines.problem == "No such file or directory"
    assert list(lines.read()) == []
    (tmp_path / "sub").mkdir()
    lines.append({"n": 2})
    assert lines.problem == ""
    assert list(lines.read()) == [{"n": 2}]


def test_a_short_write_counts_as_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_in(tmp_path / "a.jsonl")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:3]))
    lines.append({"n": 1})
    assert lines.problem == "No space left on device"
    monkeypatch.undo()
    lines.append({"n": 2})
    assert (lines.problem, list(lines.read())) == ("", [{"n": 2}])


def test_a_link_or_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        lines = lines_in(tmp_path / name)
        lines.append({"n": 1})
        assert lines.problem
    assert (tmp_path / "target").read_text() == ""
