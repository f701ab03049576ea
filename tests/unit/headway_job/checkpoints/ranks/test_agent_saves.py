"""Ranks of which an agent requests a save pause at the same step, and continue later as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.wire.report import CheckpointReport
from tests.unit.headway_job.checkpoints.conftest import ForkServer, Started
from tests.unit.headway_job.checkpoints.ranks.node import Node, reached, reported_names, until
from tests.unit.headway_job.checkpoints.test_resume import checkpoints

STEPS = 70
BUSY = 8
"""Steps after which the ranks wait for a request."""


class Job:
    """Runs of one program under the agent of one node."""

    def __init__(self, fork_server: ForkServer, node: Node, folder: Path) -> None:
        self._hatchery = fork_server
        self._node = node
        self.folder = folder
        self._begun: list[Started] = []

    async def begin(self, world: int = 2, steps: int = STEPS, **args: Any) -> Started:
        given = {"folder": self.folder, "socket": self._node.socket, "asked": self._node.asked, "busy": BUSY}
        args = {**given, "steps": steps, **args}
        self._node.asked.unlink(missing_ok=True)
        started = await asyncio.to_thread(
            self._hatchery.begin, args.pop("program", "ranks.agent_saves.train"), world, **args
        )
        self._begun.append(started)
        await self._node.trains(started, min(steps, BUSY))
        return started

    async def end(self) -> None:
        """Kill all ranks that still run."""
        for started in self._begun:
            if not started.ended:
                for pid in started.pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.to_thread(started.wait)


@pytest.fixture
async def alone(tmp_path: Path) -> Node:
    """Return a node without an agent."""
    return Node(tmp_path)


@pytest.fixture
async def node(alone: Node) -> AsyncIterator[Node]:
    """Return a node with an agent."""
    async with alone.agent_runs():
        yield alone


@pytest.fixture
async def job(fork_server: ForkServer, alone: Node, folder: Path) -> AsyncIterator[Job]:
    """Return a job whose ranks report to the agent that is running."""
    job = Job(fork_server, alone, folder)
    yield job
    await job.end()


@pytest.mark.parametrize("world", [1, 2])
async def test_all_ranks_pause_at_one_step_and_continue_with_the_same_losses(
    node: Node, job: Job, fork_server: ForkServer, tmp_path: Path, world: int
) -> None:
    started = await job.begin(world)

    save = node.ask()
    answer = await node.answer(save)
    assert (answer.problem, answer.ranks, answer.world_size) == ("", tuple(range(world)), world)
    await node.stays_paused(started, answer.step)
    assert [int(path.name.split("-")[1]) for path in checkpoints(job.folder)] == [answer.step]
    node.go_on(save)

    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0] * world, ended.logs
    whole = await asyncio.to_thread(fork_server.run, "train", world, folder=tmp_path / "whole", steps=STEPS)
    for rank in range(world):
        assert ended.losses(rank) == pytest.approx(whole.losses(rank), abs=1e-6)


def lines_of(log: str) -> list[str]:
    return [line.removeprefix("headway: ") for line in log.splitlines() if line.startswith("headway: ")]


async def test_the_jobs_own_log_has_a_line_when_it_is_stopped_goes_on_and_runs_again(
    node: Node, job: Job, fork_server: ForkServer
) -> None:
    # given a job that is asked to save, to be stopped for a reason
    started = await job.begin()
    save = node.ask(why="the contention threshold (1.74 times slower\x1b beside job 8)")
    step = (await node.answer(save)).step
    # then one rank writes one line before it is stopped
    why = "the contention threshold (1.74 times slower? beside job 8)"
    stopped = f"step {step} is saved; the scheduler now stops this job, and starts it again later: {why}"
    assert [lines_of(log) for log in started.so_far().logs] == [[stopped], []]
    # and another one when it is not stopped after all
    node.go_on(save)
    ended = await asyncio.to_thread(started.wait)
    called_off = (
        f"the job trains on after step {step}: the scheduler has cancelled its request, and the job stays where it is"
    )
    assert lines_of(ended.logs[0])[1:] == [called_off]
    # and when Slurm starts it again, those with what was restored, what the emptied log has lost, and the step at which it goes on
    again = await asyncio.to_thread(fork_server.run, "restarted", 2, folder=job.folder)
    first, others = (lines_of(log) for log in again.logs)
    assert first[0] == f"restored {job.folder}/{checkpoints(job.folder)[-1].name}: {step} steps are done"
    lost = (
        rf"start 1 of the job saved step {step} at [\d-]+ [\d:]+, so that the scheduler could stop it: {re.escape(why)}"
    )
    assert re.fullmatch(lost, first[1])
    assert first[2:] == [f"this is start 2 of the job; it trains on after step {step}"]
    assert others == []
    # and with another number of ranks, that too
    (alone,) = (await asyncio.to_thread(fork_server.run, "restarted", 1, folder=job.folder)).logs
    assert lines_of(alone)[2] == f"this is start 2 of the job; it trains on after step {step}, on 1 rank instead of 2"
    # but a later start does not say that it was stopped for the same reason
    (later,) = (await asyncio.to_thread(fork_server.run, "restarted", 1, folder=job.folder, count=2)).logs
    assert lines_of(later)[1].startswith("this is start 3 of the job")
    # nor does another job that continues from the same folder
    (other,) = (await asyncio.to_thread(fork_server.run, "restarted", 1, folder=job.folder, job_id="9912")).logs
    assert lines_of(other)[1].startswith("this is start 2 of the job")
    assert "`headway why 9912` says why it was stopped" in lines_of(other)[1]


async def test_the_controller_gets_the_state_of_checkpoints_at_once(node: Node, job: Job) -> None:
    started = await job.begin()
    await until(lambda: node.heard.checkpoint == CheckpointReport((0, 1), None, None, False), "both registered")
    first = node.heard.rows[-1]
    assert first.started_ns is not None and first.loaded_ns is not None
    await until(lambda: node.heard.rows[-1].first_step_ns, "its first step")
    assert first.started_ns < first.loaded_ns < (node.heard.rows[-1].first_step_ns or 0)

    save = node.ask()
    answer = await node.answer(save)
    await until(lambda: node.heard.checkpoint == CheckpointReport((0, 1), None, answer.step, True), "what was saved")
    node.go_on(save)
    assert (await asyncio.to_thread(started.wait)).ends == [0, 0]

    again = await job.begin()
    await until(lambda: node.heard.checkpoint == CheckpointReport((0, 1), answer.step, None, False), "restored")
    node.train_on()
    assert (await asyncio.to_thread(again.wait)).ends == [0, 0]
    assert node.heard.hasty == len(node.heard.rows)  # the agent's next report is minutes away


async def test_ranks_that_get_the_request_at_different_steps_pause_at_the_same(node: Node, job: Job) -> None:
    started = await job.begin(steps=400)
    node.deaf.add(0)

    save = node.ask()
    step = await node.paused_at(started)
    assert not node.heard.answers
    node.deaf.clear()

    answer = await node.answer(save)
    assert (answer.problem, answer.ranks, answer.step) == ("", (0, 1), step)


async def test_a_second_request_during_a_pause_gets_the_same_answer(node: Node, job: Job) -> None:
    started = await job.begin()
    first = node.ask("p1.1")
    answer = await node.answer(first)

    node.ask(first)
    assert await node.answer(first, 2) == answer
    second = node.ask("p1.2")
    assert replace(await node.answer(second), id=first) == answer
    node.go_on(first)
    await node.stays_paused(started, answer.step)
    node.go_on(second)

    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert [int(path.name.split("-")[1]) for path in checkpoints(job.folder)] == [answer.step]


async def test_ranks_that_are_not_stopped_continue(node: Node, job: Job) -> None:
    enough, heard = job.folder.parent / "enough", job.folder.parent / "heard"
    started = await job.begin(enough=enough, holds_at=STEPS - 5, until=heard)
    save = node.ask(still_s=3600.0)
    answer = await node.answer(save)
    enough.touch()
    await until(lambda: min(reached(started)) > answer.step, "they train on")

    await until(lambda: not node.heard.checkpoint.saving, "the controller knows")
    node.ask(save)
    assert (await node.answer(save, 2)).problem == "ranks have trained on since"
    heard.touch()
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert "the job was not stopped within 3600 s" in ended.logs[0]


async def test_ranks_continue_without_an_agent(alone: Node, job: Job) -> None:
    node = alone
    async with node.agent_runs():
        started = await job.begin(line_lost_s=0.5)
        await node.answer(node.ask())
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert "the connection to the scheduler's agent on this node is lost" in ended.logs[0]


async def test_an_agent_that_is_started_again_finds_the_paused_ranks(alone: Node, job: Job) -> None:
    node = alone
    async with node.agent_runs():
        started = await job.begin()
        save = node.ask()
        before = await node.answer(save)
    async with node.agent_runs():
        node.ask(save)
        assert await node.answer(save, 2) == before
        await until(lambda: node.heard.checkpoint.saving, "the controller knows")
        await node.stays_paused(started, before.step)
        node.go_on(save)
        assert (await asyncio.to_thread(started.wait)).ends == [0, 0]


async def test_a_request_that_fails_without_an_agent_is_cancelled_when_it_is_back(alone: Node, job: Job) -> None:
    node = alone
    async with node.agent_runs():
        started = await job.begin()
        save = node.ask()
        await node.answer(save)
    async with node.agent_runs():
        node.go_on(save)  # before they have connected
        ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert "the job stays where it is" in ended.logs[0]


async def test_sigterm_ends_them_as_always(node: Node, job: Job) -> None:
    started = await job.begin()
    answer = await node.answer(node.ask())
    for pid in started.pids:
        os.kill(pid, signal.SIGTERM)
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [-signal.SIGTERM] * 2

    again = await job.begin()
    node.train_on()
    assert (await asyncio.to_thread(again.wait)).reported("start", 1) == answer.step


@pytest.mark.parametrize("how", ["exits", "goes on"])
async def test_the_programs_own_handler_of_sigterm_is_called_and_decides(node: Node, job: Job, how: str) -> None:
    started = await job.begin(sigterm=how)
    answer = await node.answer(node.ask())
    for pid in started.pids:
        os.kill(pid, signal.SIGTERM)
    ended = await asyncio.to_thread(started.wait)

    assert [ended.reported("handled", rank) for rank in (0, 1)] == [signal.SIGTERM] * 2
    last = {rank: max(ended.losses(rank)) + 1 for rank in (0, 1)}
    if how == "exits":
        assert "SystemExit" in ended.logs[0]
        assert last == {0: answer.step, 1: answer.step}
    else:
        assert (ended.ends, last) == ([0, 0], {0: STEPS, 1: STEPS})


async def test_a_save_that_fails_ends_the_pause(node: Node, job: Job) -> None:
    started = await job.begin(unwritable=1)
    answer = await node.answer(node.ask())
    assert answer.problem == "rank 1: could not write: [Errno 28] No space left on device"
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert len(ended.losses()) == STEPS
    assert checkpoints(job.folder) == []


async def test_a_rank_that_dies_while_it_writes_is_reported(node: Node, job: Job) -> None:
    started = await job.begin(dies_writing=1)
    answer = await node.answer(node.ask())
    # Of the other rank, its error may come first, or its end, where the agent looks late.
    said = ("rank 1 is gone", "ranks 0, 1 are gone", "rank 0: not complete on all ranks")
    assert any(each in answer.problem for each in said), answer.problem
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [1, -signal.SIGKILL]  # the other one fails in its next collective


async def test_a_process_without_a_checkpoint_is_reported(node: Node, job: Job) -> None:
    started = await job.begin(1, program="ranks.agent_saves.bare")
    assert (await node.answer(node.ask())).problem == "the process that trains has no checkpoint"
    assert (await asyncio.to_thread(started.wait)).ends == [0]


async def test_a_run_ends_after_a_request_in_its_last_step(node: Node, job: Job) -> None:
    started = await job.begin(steps=BUSY, hears_at=BUSY - 1)
    answer = await node.answer(node.ask())
    assert "its training has ended" in answer.problem
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert ended.reported("saved") == BUSY


async def test_a_request_after_the_training_finds_no_checkpoint(node: Node, job: Job, folder: Path) -> None:
    end = folder.parent / "end"
    started = await job.begin(steps=BUSY - 1, end=end)
    await until(lambda: not any(one.checkpoint.open for one in node.trainers()), "the end of both runs")
    assert (await node.answer(node.ask())).problem == "rank 0 has no checkpoint"
    end.touch()
    assert (await asyncio.to_thread(started.wait)).ends == [0, 0]


async def test_a_request_that_arrives_after_its_cancellation_causes_no_pause(node: Node, job: Job) -> None:
    started = await job.begin()
    node.go_on("p1.1")
    node.ask("p1.1")
    assert (await node.answer("p1.1")).problem == "it was called off"
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
    assert "The training pauses" not in ended.logs[0]


async def test_ranks_that_do_not_save_in_time_continue_and_can_get_another_request(node: Node, job: Job) -> None:
    held = 40
    started = await job.begin(hears_at=held - 1)
    node.deaf.add(0)
    late = await node.answer(node.ask(within_s=1.2))
    # rank 1 may be late too
    assert late.problem in ("rank 0 did not save within 1.2 s", "ranks 0, 1 did not save within 1.2 s")
    node.deaf.clear()
    await until(lambda: reached(started) == [held, held], "they train on")
    save = node.ask()
    assert (await node.answer(save)).problem == ""
    node.go_on(save)
    assert (await asyncio.to_thread(started.wait)).ends == [0, 0]


async def test_a_program_that_forks_again_and_again_gets_requests(node: Node, job: Job) -> None:
    started = await job.begin(forks=12)
    save = node.ask()
    answer = await node.answer(save)
    await until(lambda: all("forked" in row for row in reported_names(started)), "all forks, while it stands still")
    await node.stays_paused(started, answer.step)
    node.go_on(save)
    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0, 0], ended.logs
