"""Number of threads for the arithmetic of policies."""

from __future__ import annotations

import os
import sys

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def use_one_thread() -> None:
    """Let numpy and torch compute in one thread each, also where they are imported later.

    A policy's networks are small. Where other programs use the cores, the threads of one operation wait for each other much longer
    than they compute. This function does not import torch.
    """
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
