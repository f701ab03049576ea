"""An attempt whose training is replaced by weights of the test; its limits, its comparison and its result are the real ones.
It has the priority of other processes: beside busy ones, an attempt would take as long as they do.

The weights are in the folder that the environment variable CANDIDATE names; with SLEEP_S, the training takes so long.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from policies.learned.dl2.learning import attempt

CANDIDATE, SLEEP_S = "HEADWAY_TEST_CANDIDATE", "HEADWAY_TEST_SLEEP"


def train(*_: object) -> None:
    """Take the candidate in place of a training."""
    time.sleep(float(Path(os.environ[SLEEP_S]).read_text()))
    shutil.copytree(Path(os.environ[CANDIDATE]) / "best", Path(attempt.TRAINING) / "best")


if __name__ == "__main__":
    attempt._train = train
    attempt.NICENESS = 0
    attempt.main()
