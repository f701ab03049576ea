"""Names of folders for the files of policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.results.files import folder_name


@pytest.mark.parametrize("name", ["srtf", "srtf:layout=anywhere", "las:round_s=60.5,levels=2", "x" * 80])
def test_a_plain_name_is_that_of_its_folder(name: str) -> None:
    assert folder_name(name) == name


def test_other_names_stay_readable() -> None:
    assert folder_name("unix:///tmp/p.sock?fallback=fifo").startswith("unix:_tmp_p.sock_fallback=fifo-")
    assert folder_name("x" * 81).startswith("x" * 71 + "-")


def test_every_name_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    weights = f"marl:weights=/{'w' * 4000}"
    names = [
        weights,
        f"{weights}2",
        "a:b=/c",
        "a:b=_c",
        "a:b=c",
        "..",
        ".",
        "é" * 90,
        "a:b=\n",
        "a:b=\udc80",
        "grpc://h:1",
    ]

    folders = [folder_name(name) for name in names]

    assert len(set(folders)) == len(names)
    for folder in folders:
        (tmp_path / folder).mkdir()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(folders)
