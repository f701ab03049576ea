"""Settings files of an installation are replaced at once: a program that reads one meanwhile finds all of it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from slurm.testbed.programs import write_toml


def test_a_file_that_is_being_read_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "controller.toml"
    write_toml(path, {"partitions": ["dl"], "stale_after_s": 8.0, "metrics": True})
    with path.open("rb") as reader:
        write_toml(path, {"partitions": ["dl", "other"]})
        assert tomllib.load(reader) == {"partitions": ["dl"], "stale_after_s": 8.0, "metrics": True}
    assert tomllib.loads(path.read_text()) == {"partitions": ["dl", "other"]}
    assert list(tmp_path.iterdir()) == [path]
