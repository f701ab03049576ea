"""The watchdog beside a settings file that is wrong: it still finds the lease and Slurm, as far as that can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.daemon.watchdog.settings import watchdog_settings

GOOD = """partitions = ["dl"]
runtime_dir = "/run/other"
slurm_bin = "/opt/slurm/bin"
slurm_timeout_s = 20
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "controller.toml"


def test_a_file_in_order_counts_whole(path: Path) -> None:
    path.write_text(GOOD)
    settings, problem = watchdog_settings(path)

    assert (settings.runtime_dir, settings.slurm_bin, settings.slurm_timeout_s) == (
        Path("/run/other"), Path("/opt/slurm/bin"), 20,
    )  # fmt: skip
    assert problem == ""


@pytest.mark.parametrize(
    "mistake",
    [
        "no_such_key = 1", "poll_interval_s = -3", 'preemption = "maybe"', "slurm_timeout_s = 1 2", "= 7", "log_level = [",
        "[unfinished", "partitions = 7", "keep_days = " + "9" * 400,
    ],
)  # fmt: skip
def test_a_mistake_costs_its_own_line(path: Path, mistake: str) -> None:
    path.write_text(f"{GOOD}{mistake}\n")
    settings, problem = watchdog_settings(path)

    assert (settings.runtime_dir, settings.slurm_bin) == (Path("/run/other"), Path("/opt/slurm/bin"))
    assert str(path) in problem


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe\x00", b"\x00" * 100, b"runtime_dir = " + b"[" * 100_000, b"runtime_dir = 7"]
)
def test_nothing_understood_means_the_defaults(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    settings, problem = watchdog_settings(path)

    assert (settings.runtime_dir, settings.slurm_client) == (Path("/run/headway"), "auto")
    assert problem


@pytest.mark.parametrize("thing", ["absent", "folder", "pipe", "loop"])
def test_no_file_means_the_defaults_and_no_waiting(path: Path, thing: str) -> None:
    match thing:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
    settings, problem = watchdog_settings(path)

    assert settings.runtime_dir == Path("/run/headway")
    assert str(path) in problem
