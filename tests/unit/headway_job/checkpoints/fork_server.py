"""Imports torch once, and then forks the ranks of one run after the other. Requests and answers are JSON lines."""

import faulthandler
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - each optimizer imports it: once here, not in each rank

from tests.unit.headway_job.checkpoints import training


def main() -> None:
    """Serve requests until stdin is closed."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    faulthandler.enable()  # a rank that dies of a signal leaves its stacks in its log
    for line in sys.stdin:
        order = json.loads(line)
        pids = [forked(rank, order) for rank in range(order["world"])]
        answer({"pids": pids})
        answer({"ends": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]})


def answer(row: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def forked(rank: int, order: dict[str, Any]) -> int:
    """Start the process of a rank, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    out = Path(order["out"])
    log = os.open(out / f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(log, number)
    ended = 1
    try:
        world, reported = order["world"], str(out / f"reported-{rank}")
        training.run_rank(rank, world, str(out / "meeting"), order["name"], order["args"], reported)
        ended = 0
    except BaseException:  # noqa: BLE001 - it is logged; the process ends here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(ended)
    return 0


if __name__ == "__main__":
    main()
