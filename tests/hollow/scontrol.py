"""A folder with the scontrol that the controller runs: Slurm's own, with hollow nodes shown as registered, and slow on request."""

from __future__ import annotations

import shutil
from pathlib import Path

_SCRIPT = """#!/bin/sh
# slurmctld learns the start of a slurmd from the slurmd alone, which hollow nodes do not have.
[ -e {folder}/slow ] && sleep "$(cat {folder}/slow)"
echo >> {folder}/calls
export LC_ALL=C
shown() {{
    {scontrol} "$@" | sed 's/ SlurmdStartTime=None / SlurmdStartTime=2026-01-01T00:00:00 /'
}}
wait_while_it_hangs() {{
    while [ -e {folder}/hang ]; do sleep 0.2; done
}}
[ -e {folder}/hangs ] && wait_while_it_hangs
[ -e {folder}/hang ] || {{ shown "$@"; exit; }}
# The first call that releases jobs is carried out; the next one hangs, and every later call.
lines=$(cat)
case $lines in *release*)
    [ -e {folder}/released ] && {{ touch {folder}/hangs; wait_while_it_hangs; }}
    touch {folder}/released
esac
printf '%s\\n' "$lines" | shown "$@"
"""


class WrappedScontrol:
    """Programs for `slurm_bin`. Invariant: what the controller reads and writes is otherwise Slurm's own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        program = folder / "scontrol"
        program.write_text(_SCRIPT.format(folder=folder, scontrol=_path_of("scontrol")))
        program.chmod(0o755)
        for other in ("squeue", "scancel"):
            (folder / other).symlink_to(_path_of(other))

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        path = self.folder / "calls"
        return path.stat().st_size if path.exists() else 0

    def delay(self, seconds: float) -> None:
        """Sleep for this time before each later call; 0 = no longer."""
        path = self.folder / "slow"
        if seconds:
            # In one step, so that no call reads half a number.
            (fresh := path.with_suffix(".new")).write_text(f"{seconds}\n")
            fresh.replace(path)
        else:
            path.unlink(missing_ok=True)

    def hang_at_second_release(self) -> None:
        """Hang from the second of the later calls that release jobs, until `answer`; so the test need not be quick.

        Calls write other files than the test, so that none that is in flight can undo `answer`.
        """
        (self.folder / "hang").touch()

    @property
    def hangs(self) -> bool:
        """Return whether a call has begun to hang."""
        return (self.folder / "hangs").exists()

    def answer(self) -> None:
        """Answer again."""
        (self.folder / "hang").unlink()
        self.delay(0)


def _path_of(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(program)
    return found
