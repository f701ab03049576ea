"""`python -m tests.recordings FOLDER` (as root): record on a mini-cluster what the installed release of Slurm prints.

The tests of parsers read such folders: `tests/unit/controller/slurm/recorded` has one for each release.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from slurm.errors import MiniClusterError
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from tests.recordings.record import record


def main() -> int:
    """The command. Returns 2 where no cluster can be booted."""
    parser = argparse.ArgumentParser(prog="python -m tests.recordings", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the texts of this release")
    parser.add_argument(
        "--cgroup", choices=("auto", "v2", "none"), default="auto", help="cgroups of jobs (default: %(default)s)"
    )
    options = parser.parse_args()
    if problem := "; ".join(missing()):
        print(problem, file=sys.stderr)
        return 2
    end_on_signals()  # the clusters go with the command
    try:
        record(options.folder, options.cgroup)
    except MiniClusterError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
