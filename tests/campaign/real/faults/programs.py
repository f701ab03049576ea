"""Slurm's programs as the controller sees them: they can be slow, and lose requests or answers."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

_PROGRAMS = ("scontrol", "squeue", "scancel")
_SCRIPT = """#!/bin/sh
# {real}, with the faults that files beside this program name.
if [ -e {here}.slow ]; then sleep "$(cat {here}.slow)"; fi
for file in {here}.request_lost.* {here}.answer_lost.*; do
    # Only one process can rename a file
    if [ -e "$file" ] && mv "$file" "{folder}/used.$$" 2> /dev/null; then
        case $file in
        *.answer_lost.*) {real} "$@" > /dev/null 2>&1; echo "Socket timed out on send/recv operation" >&2 ;;
        *) echo "Unable to contact slurm controller (connect failure)" >&2 ;;
        esac
        exit 1
    fi
done
exec {real} "$@"
"""
_numbers = itertools.count()


def install_programs(folder: Path) -> Path:
    """Write the programs into a new folder, which the controller's user must own. Return the folder."""
    folder.mkdir(mode=0o755)
    for name in _PROGRAMS:
        path = folder / name
        path.write_text(_SCRIPT.format(real=shutil.which(name), here=path, folder=folder))
        path.chmod(0o755)
    return folder


def make_slow(folder: Path, program: str, by_s: float) -> None:
    """Make each call of the program take longer; 0 ends that."""
    path = folder / f"{program}.slow"
    if by_s:
        path.write_text(f"{by_s}\n")
    else:
        path.unlink(missing_ok=True)


def lose(folder: Path, program: str, what: str) -> None:
    """Lose the next request or answer of the program; `what` is request_lost or answer_lost."""
    (folder / f"{program}.{what}.{next(_numbers)}").touch()


def mend_programs(folder: Path) -> None:
    """End every fault."""
    for path in (*folder.glob("*.slow"), *folder.glob("*_lost.*"), *folder.glob("used.*")):
        path.unlink(missing_ok=True)
