"""A program that changes its folder as Hydra does, before or after its run begins, and reports where that run saved."""

import multiprocessing
import os
import sys
from pathlib import Path


def train(into: str, when: str, place: str) -> None:
    import headway_job
    import torch

    Path(into).mkdir(parents=True, exist_ok=True)
    if when == "before":
        os.chdir(into)
    run = headway_job.checkpoint(place or None, model=torch.nn.Linear(1, 1))
    if when == "after":
        os.chdir(into)
    start = run.start
    for step in run.steps(start + 3):
        if step == start + 1:
            run.save()
    print("start", start, "where", run._where)


if __name__ == "__main__":
    how, *args = sys.argv[1:]
    if how == "direct":
        train(*args)
    else:
        Path("elsewhere").mkdir(exist_ok=True)
        os.chdir("elsewhere")
        child = multiprocessing.get_context(how).Process(target=train, args=args)
        child.start()
        child.join()
