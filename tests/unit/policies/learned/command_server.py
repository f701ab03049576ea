"""Loads what trainings need once, and then forks a process for each command of headway-policy. Requests and answers are JSON lines.

A command has a process, a folder, an environment and a search path of its own, as if its interpreter had just been started.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any, NoReturn

import gymnasium.vector  # noqa: F401
import numpy as np
import torch._dynamo  # each optimizer imports it
import torch.utils.tensorboard  # noqa: F401

import policies.learned.training.systems  # noqa: F401
import simulator.runs  # noqa: F401
from policies.serving.cli.app import main
from tests.forked_program import be_program

INSTALLED = [path for path in sys.path if path not in ("", *os.environ["PYTHONPATH"].split(os.pathsep))]


def serve() -> None:
    """Answer with the exit status of each command, until stdin is closed."""
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps(code), flush=True)


def run(order: dict[str, Any]) -> NoReturn:
    """Be the process of the command."""

    def command() -> object:
        become(order)
        return main()

    be_program(command)


def become(order: dict[str, Any]) -> None:
    """Take over the folder, the environment and the search path of the command."""
    os.setsid()
    os.chdir(order["cwd"])
    for number, name in enumerate((os.devnull, order["stdout"], order["stderr"])):
        opened = os.open(name, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:] = ["", *order["env"]["PYTHONPATH"].split(os.pathsep), *INSTALLED]
    sys.argv[1:] = order["argv"]
    np.random.seed()  # of its own, as a new process would have it
