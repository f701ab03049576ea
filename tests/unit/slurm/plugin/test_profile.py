"""The file for /etc/profile.d that gives plain `squeue` a column more."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PROFILE = ROOT / "slurm/plugin/profile.d/headway.sh"
SHELLS = [shell for shell in ("dash", "bash", "ksh", "zsh") if shutil.which(shell)]


def formats(shell: str, *options: str, **variables: str) -> list[str]:
    """Return SQUEUE_FORMAT and SQUEUE_FORMAT2 as a program sees them that this shell starts after it has read the file."""
    script = f". {PROFILE}; printenv SQUEUE_FORMAT || echo; printenv SQUEUE_FORMAT2 || echo"
    environment = {"PATH": os.environ["PATH"], "ENV": "/dev/null", **variables}
    words = (shell, *options, "-u", "-c", script)
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment, timeout=30)
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_at_a_terminal_gets_the_column(shell: str) -> None:
    old, new = formats(shell, "-i")

    assert old == ""
    assert new.startswith("JobArrayID:.18 ,")
    assert new.endswith(",admin_comment:")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_and_users_with_a_format_of_their_own_are_left_alone(shell: str) -> None:
    assert formats(shell) == ["", ""]
    assert formats(shell, "-i", SQUEUE_FORMAT="%i") == ["%i", ""]
    assert formats(shell, "-i", SQUEUE_FORMAT2="JobID") == ["", "JobID"]


def test_it_is_installed_below_share() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert settings["tool"]["setuptools"]["data-files"]["share/headway/profile.d"] == ["slurm/plugin/profile.d/*"]
