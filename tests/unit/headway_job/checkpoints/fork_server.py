"""Imports torch once, and forks the ranks of one run after the other. Orders and answers are JSON lines."""

import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - as every optimizer does: once here, not in every rank

from tests.unit.headway_job.checkpoints import training


def main() -> None:
    """Until there are no more orders."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    for line in sys.stdin:
        order = json.loads(line)
        pids = [forked(rank, order) for rank in range(order["world"])]
        answer({"pids": pids})
        answer({"ends": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]})


def answer(row: dict[str, Any]) -> None:
    """One line."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def forked(rank: int, order: dict[str, Any]) -> int:
    """The process of a rank."""
    pid = os.fork()
    if pid:
        return pid
    out = Path(order["out"])
    log = os.open(out / f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(log, number)
    ended = 1
    try:
        world, told = order["world"], str(out / f"told-{rank}")
        training.hatch(rank, world, str(out / "meeting"), order["name"], order["args"], told)
        ended = 0
    except BaseException:  # noqa: BLE001 - told on the log; the process ends here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(ended)
    return 0


if __name__ == "__main__":
    main()
