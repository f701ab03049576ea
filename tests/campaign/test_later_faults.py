"""Lying agents and a slow disk in stories: what they do, and that stories have them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

from controller.slurm.embedded import Submission, sbatch_request
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.job import NodeShare
from controller.state.journal import Journal
from tests.campaign.play import play
from tests.campaign.plot.faults import kill_controller
from tests.campaign.plot.generate import make_story
from tests.campaign.plot.story import JobSpec, Step, Story
from tests.campaign.world.fleet import Training
from tests.campaign.world.journal_disk import stand_still_at_writes
from tests.campaign.world.lies import SeenRun, lie
from tests.campaign.world.processes import Pause, Process
from tests.campaign.world.virtual_loop import VirtualLoop


def test_most_stories_have_a_lying_agent_or_a_slow_disk() -> None:
    kinds = Counter(step.verb for seed in range(40) for step in make_story(seed).steps)
    assert kinds["agent_lies"] > 20
    assert kinds["disk_slow"] > 20


def test_a_controller_is_stopped_and_killed_while_its_disk_is_slow() -> None:
    together: Counter[str] = Counter()
    for seed in range(40):
        for first, then in pairwise(make_story(seed).steps):
            if first.verb == "disk_slow" and then.after_s <= first.args["seconds"]:
                together[then.verb] += 1
    assert min(together["stop_controller"], together["kill_controller"]) > 3


def test_a_lying_agent_claims_everything_but_saves() -> None:
    chance = random.Random(1)
    runs = [run_on("n1", "p100.1"), run_on("n2", "p200.1")]
    lies = [lie(chance, "n1", runs, 5.0) for _ in range(200)]
    assert {report.WhichOneof("kind") for report in lies} == {"job", "ended", "answer"}
    assert len({report.job.job.restart for report in lies if report.WhichOneof("kind") == "job"}) > 3
    assert sum(report.time_s == 5.0 for report in lies) > 100
    # the ranks on its own node refuse to save, or say nothing; those on another node "have saved"
    saves = Counter(
        (report.answer.id, report.answer.accepted) for report in lies if report.WhichOneof("kind") == "answer"
    )
    assert saves["p100.1", True] == 0
    assert min(saves["p100.1", False], saves["p200.1", True]) > 0


def test_a_job_is_saved_and_stopped_and_ends_beside_a_lying_agent_and_a_slow_disk() -> None:
    job = JobSpec(0, 40.0, gpus_per_node=1, trains=True)
    steps = (
        Step(0.0, "submit", vars_of(job)),
        Step(1.0, "agent_lies", {"node": "n2", "seed": 3, "every_s": 0.1, "seconds": 60.0}),
        Step(0.0, "disk_slow", {"by_s": 0.3, "seconds": 60.0}),
        Step(15.0, "preempt", {"pick": 0}),
    )
    story = Story(0, 2, 2, "fifo-skip", True, steps)
    played = play(story)
    assert list(map(str, played.violations)) == []
    assert played.starts == 2, "it was stopped, and started again"
    slower = play(replace(story, steps=(*steps[:2], replace(steps[2], args={"by_s": 2.0, "seconds": 60.0}), steps[3])))
    assert slower.violations == []


def test_a_controller_stands_still_at_each_write(tmp_path: Path) -> None:
    first, second, third = times_of_writes(tmp_path, lambda _: None)
    assert (round(second - first, 3), round(third - second, 3)) == (2.0, 2.0)


def test_a_stop_of_a_controller_that_waits_for_its_disk_has_its_own_end(tmp_path: Path) -> None:
    def stop(process: Process) -> None:
        """SIGSTOP in the middle of the first write, for longer than it takes."""
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, process.stop)
        loop.call_later(6.0, process.cont)

    first, second, third = times_of_writes(tmp_path, stop)
    assert (round(first, 3), round(second - first, 3), round(third - second, 3)) == (6.0, 2.0, 2.0)


def test_a_controller_that_waits_for_its_disk_is_killed_at_once() -> None:
    cluster = MagicMock()
    cluster.process = Process("controller")
    kill_controller(cluster, awaits=3, back_in_s=1.0)
    assert cluster.process.alive
    cluster.process.stop(Pause.DISK)
    kill_controller(cluster, awaits=3, back_in_s=1.0)
    assert not cluster.process.alive


def times_of_writes(folder: Path, meanwhile: Callable[[Process], None]) -> list[float]:
    """Return the times after each of three writes that take 2 s; `meanwhile` is called before the first."""
    loop = VirtualLoop()
    loop.set_task_factory(Process.factory)
    times: list[float] = []

    async def work() -> None:
        journal = Journal(folder / "journal.sqlite")
        stand_still_at_writes(journal, process, 2.0)
        for _ in range(3):
            journal.settle({1: "done"}, 0.0)
            await asyncio.sleep(0.0)
            times.append(loop.time())
        journal.close()

    process = Process("controller")

    async def main() -> None:
        meanwhile(process)
        process.start(work())
        assert process.main is not None
        await process.main

    loop.run_until_complete(main())
    loop.close()
    return times


def run_on(node: str, save_id: str) -> SeenRun:
    """A run of which that node has been asked to save, as the fleet has it."""
    request = sbatch_request(gpus_per_node=1)
    job = Job(
        save_id, Submission(request=request, duration_s=60.0), request, "dl", 0, 1, 0, None, None, "", requeue=True,
        allocated=(NodeShare(node, 1, 1, 1, 1024),), raw_id=1,
    )  # fmt: skip
    return Training(job, 0, 0.0, 0, asked={save_id: {node}}).seen()


def vars_of(spec: JobSpec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in JobSpec.__slots__}
