"""A run that begins and ends between two snapshots is seen in the record of its end, as Slurm 22.05 leaves it."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cycle.changes import changes
from controller.slurm.client import NodeShare, Phase
from tests.unit.controller.examples.build import job

WAITS = job("7")
END_S = 1_000_100.0
ON_N1 = NodeShare("n1", gpus=1, gpu_mask=1, cpus=1, memory_mib=1000)


@pytest.mark.parametrize(
    ("left", "runs"),
    [
        pytest.param({"start_time_s": END_S - 2, "allocated": (ON_N1,)}, True, id="two seconds"),
        pytest.param({"start_time_s": END_S, "allocated": (ON_N1,)}, True, id="less than a second"),
        pytest.param({"start_time_s": END_S - 2}, True, id="without the nodes"),
        pytest.param({"start_time_s": END_S}, False, id="cancelled in the queue"),
        pytest.param({"start_time_s": None}, False, id="never started"),
    ],
)
def test_a_run_between_two_snapshots(left: dict[str, Any], runs: bool) -> None:
    ended = job("7", phase=Phase.ENDED, state="CANCELLED", end_time_s=END_S, **left)
    found = changes({WAITS.key: WAITS}, {ended.key: ended}, lambda *_: False)
    assert (found.started, found.ended, found.unseen) == ((), (ended,), (ended,) if runs else ())


def test_a_run_that_was_seen_is_not_unseen() -> None:
    runs = job("7", phase=Phase.RUNNING, state="RUNNING", start_time_s=END_S - 9, allocated=(ON_N1,))
    ended = job("7", phase=Phase.ENDED, state="COMPLETED", start_time_s=END_S - 9, end_time_s=END_S)
    assert changes({WAITS.key: WAITS}, {runs.key: runs}, lambda *_: False).started == (runs,)
    found = changes({runs.key: runs}, {ended.key: ended}, lambda *_: False)
    assert (found.ended, found.unseen) == ((ended,), ())
