"""On a real Slurm: a policy preempts a long job for a short one, and the long one runs again afterwards."""

from __future__ import annotations

import pytest

from tests.cluster.live import USER, live

pytestmark = pytest.mark.timeout(300)

LONG = """#!/bin/bash
#SBATCH --requeue --open-mode=append --output=/dev/null --comment=headway=preemptible --time=600
trap 'echo saved >> long.$SLURM_JOB_ID; scontrol requeue $SLURM_JOB_ID' USR1
echo run ${SLURM_RESTART_COUNT:-0} >> long.$SLURM_JOB_ID
while true; do sleep 0.2; done
"""


def test_a_long_job_makes_room_for_a_short_one_and_comes_back() -> None:
    with live(policy="srtf", preemption="automatic", preemption_min_run_s=0.0) as world:
        # given a long preemptible job on all nodes
        submitted = world.cluster.run(
            "sbatch", "--parsable", "-N4", "--gpus-per-node=8", "--ntasks-per-node=1", stdin=LONG, user=USER
        )
        long = submitted.stdout.strip()
        account = world.cluster.files.work / f"long.{long}"
        world.until(account.exists, "the long job runs")
        # when a short one is submitted
        short = world.sbatch("--gpus=4", "--time=1", seconds=3)
        # then it runs as soon as the long one has saved
        world.until_state(short, "COMPLETED", timeout_s=90)
        # and the long one runs again
        world.until(lambda: account.read_text().split("\n")[:3] == ["run 0", "saved", "run 1"], "its second run", 90)
        assert world.show(long)["Restarts"] == "1"
        (row,) = world.headway.ask("preemptions")["preemptions"]
        assert (row["job_id"], row["cause"]) == (long, "policy")
