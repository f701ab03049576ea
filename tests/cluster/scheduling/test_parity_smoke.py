"""On a real Slurm: a few cases of the parity suite, on Slurm alone and under Headway; `python -m tests.parity` plays them all."""

from __future__ import annotations

from dataclasses import replace

from tests.cluster.conftest import skip_unless_possible
from tests.parity.__main__ import chosen
from tests.parity.judge.verdict import Verdict
from tests.parity.many import play_all
from tests.parity.report.result import said
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
)


def test_what_slurm_does_alone_is_the_same_under_headway() -> None:
    skip_unless_possible()
    world = replace(WORLDS["main"], lots=2, accounting=())
    results = play_all(chosen(list(CASES)), "fifo-skip", says=lambda text: None, worlds={"main": world})
    assert len(results) == len(CASES)
    worse = [result for result in results if result.judgement.verdict is Verdict.WORSE]
    assert {result.case.name: [said(each) for each in result.judgement.differences] for result in worse} == {}
