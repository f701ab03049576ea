"""On a real Slurm: a few cases of the parity suite, on Slurm alone and under Headway; `python -m tests.parity` plays them all."""

from __future__ import annotations

from dataclasses import replace

from tests.cluster.conftest import skip_unless_possible
from tests.parity.__main__ import DEFAULT_POLICY, chosen
from tests.parity.judge.verdict import Verdict
from tests.parity.many import play_all
from tests.parity.report.result import Result, said
from tests.parity.world import WORLDS

CASES = (
    "gres-two-nodes",
    "gres-too-many",
    "gres-unknown-type",
    "gpus-with-tasks",
    "nodelist-one",
    "feature-unknown",
    "exit-status",
    "array-of-three",
    "srun-one",
    "order-nice",
    "preempt-tier",
)


def test_what_slurm_does_alone_is_the_same_under_headway() -> None:
    skip_unless_possible()
    worlds = {name: replace(world, lots=2, accounting=()) for name, world in WORLDS.items()}
    results = play_all(chosen(list(CASES)), DEFAULT_POLICY, says=lambda text: None, worlds=worlds)
    assert len(results) == len(CASES)
    assert {result.case.name: found for result in results if (found := worse(result))} == {}


def worse(result: Result) -> list[str]:
    """Return in what Headway is worse, but for the times, which on a busy machine are chance."""
    differences = result.judgement.differences
    return [said(each) for each in differences if each.verdict is Verdict.WORSE and each.aspect != "start"]
