"""Jobs of a small cluster's history, for tests."""

from __future__ import annotations

import random
from dataclasses import replace

from policies.api import Outcome
from policies.learned.dl2.learning.record import JobRecord

BEGUN_S = 1.7e9

RECORD = JobRecord(
    job_id="7",
    submit_time_s=BEGUN_S,
    finish_time_s=BEGUN_S + 900.0,
    num_gpus=2,
    min_gpus=1,
    max_gpus=4,
    model="resnet-50",
    batch_size=64,
    epochs=20.0,
    service_s=800.0,
    sizes=((1, 200.0), (4, 600.0)),
    final_state="COMPLETED",
)


def records(count: int, begun_s: float = BEGUN_S) -> list[JobRecord]:
    """So many different jobs, one after the other."""
    return [
        replace(
            RECORD,
            job_id=str(number),
            submit_time_s=begun_s + 60.0 * number,
            finish_time_s=begun_s + 60.0 * number + 900.0,
        )
        for number in range(count)
    ]


def outcomes(count: int, begun_s: float, first: int = 0, seed: int = 0) -> list[Outcome]:
    """So many ends of jobs of one to four GPUs that take some minutes, and arrive faster than one GPU could serve them."""
    rng = random.Random(seed)
    found = []
    for number in range(first, first + count):
        submit_s = begun_s + 200.0 * number
        service_s = rng.uniform(600.0, 1800.0)
        found.append(
            Outcome(
                job_id=str(number),
                user="ada",
                job_name="train",
                submit_time_s=submit_s,
                start_time_s=submit_s + 10.0,
                finish_time_s=submit_s + 10.0 + service_s,
                num_gpus=rng.choice([1, 1, 2, 4]),
                num_nodes=1,
                service_s=service_s,
                final_state="COMPLETED",
            )
        )
    return found
