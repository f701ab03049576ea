"""The files for users' shells that give plain `squeue` a column more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "slurm/plugin/profile.d"
PROFILE = FOLDER / "headway.sh"
SHELLS = [shell for shell in ("dash", "bash", "ksh", "zsh") if shutil.which(shell)]
_PRINT = "printenv SQUEUE_FORMAT {other} echo; printenv SQUEUE_FORMAT2 {other} echo\n"
OTHERS = {
    "csh": ("headway.csh", "-f", "||"),
    "tcsh": ("headway.csh", "-f", "||"),
    "fish": ("headway.fish", "--no-config", "; or"),
}
"""Shells with a language of their own: the file, the option that keeps other files away, and the word between alternatives."""


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


def formats_of_other(shell: str, tmp_path: Path, *, typed: bool, **variables: str) -> list[str]:
    """Return the same of a shell with a language of its own. `typed`: it is interactive, and reads its commands from input."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: apt-get install tcsh fish")
    file, alone, other = OTHERS[shell]
    script = tmp_path / "script"
    script.write_text(f"source {FOLDER / file}\n{_PRINT.format(other=other)}")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb", **variables}
    with script.open() as lines:
        words, source = ((shell, alone, "-i"), lines) if typed else ((shell, alone, str(script)), None)
        done = subprocess.run(
            words, stdin=source, capture_output=True, text=True, check=True, env=environment, timeout=60
        )
    return [line.removeprefix("# ").removeprefix("> ") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", OTHERS)
def test_shells_with_a_language_of_their_own_get_the_same_column(shell: str, tmp_path: Path) -> None:
    (wanted,) = re.findall(r"SQUEUE_FORMAT2='(.*)'", PROFILE.read_text())

    assert wanted in formats_of_other(shell, tmp_path, typed=True)
    assert formats_of_other(shell, tmp_path, typed=False) == ["", ""]
    for variable, text in (("SQUEUE_FORMAT", "%i"), ("SQUEUE_FORMAT2", "JobID")):
        found = formats_of_other(shell, tmp_path, typed=True, **{variable: text})
        assert text in found
        assert wanted not in found


def test_all_files_set_the_same_text() -> None:
    found = [re.findall(r"JobArrayID.*admin_comment:", path.read_text()) for path in FOLDER.iterdir()]

    assert len(found) == 3
    assert all(texts == found[0] and len(texts) == 1 for texts in found)


def test_it_is_installed_below_share() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert settings["tool"]["setuptools"]["data-files"]["share/headway/profile.d"] == ["slurm/plugin/profile.d/*"]
