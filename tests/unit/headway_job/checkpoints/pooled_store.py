"""A program that ends while a save is written to a store whose client uses a thread pool: `python -m ... FOLDER`."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import eager_torch  # noqa: F401
from headway_job import checkpoint
from headway_job.checkpoints.stores.base import Receipt
from headway_job.checkpoints.stores.local import LocalStore

from tests.unit.headway_job.checkpoints.training import Training

POOL = ThreadPoolExecutor(1)


class PooledStore(LocalStore):
    """Writes each file in the pool, a while after it was asked to."""

    def write(self, folder: str, name: str, fill: Any) -> Receipt:
        time.sleep(0.5)
        return POOL.submit(super().write, folder, name, fill).result()


def main(folder: str) -> None:
    """Leave the loop while the second step is being saved."""
    training = Training(0, 1)
    run = checkpoint(PooledStore(folder), every_steps=2, **training.parts())
    for step in run.steps(100):
        training.step()
        if step == 2:
            break


if __name__ == "__main__":
    main(sys.argv[1])
