"""Many jobs go to Slurm in pieces: what worked stays done, what is too much for one call is halved, a dead slurmctld costs one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.slurm.client import Failure, FailureReason, Failures, Pin
from controller.slurm.model.job import JobKey, ResourceRequest
from controller.slurm.model.marks import PIN_MARK
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.run import Completed
from controller.slurm.updates.pieces import Pieces
from tests.unit.controller.slurm.scontrol.slurmctld import Slurmctld, held
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S

KEYS = [JobKey(str(raw), SUBMIT_S) for raw in range(1, 101)]


class Work:
    """Takes `each_s` for each job, and is not answered where that is more than `limit_s`."""

    def __init__(self, each_s: float = 0.0, limit_s: float = 10.0, start_s: float = 0.0) -> None:
        self.each_s, self.limit_s, self.start_s = each_s, limit_s, start_s
        self.now_s = 0.0
        self.pieces: list[list[JobKey]] = []

    async def __call__(self, piece: list[JobKey]) -> Failures:
        self.pieces.append(piece)
        takes_s = self.start_s + self.each_s * len(piece)
        self.now_s += min(takes_s, self.limit_s)
        if takes_s > self.limit_s:
            raise SlurmUnavailableError("no answer within 10 s")
        return {}

    @property
    def sizes(self) -> list[int]:
        return [len(piece) for piece in self.pieces]


def pieces(work: Work, first: int = 8, most: int = 32) -> Pieces:
    return Pieces(first, most, clock=lambda: work.now_s)


async def test_every_job_is_in_one_piece_and_pieces_grow_while_they_are_quick() -> None:
    work = Work()
    assert await pieces(work).run([*KEYS, *KEYS], work) == {}
    assert [key for piece in work.pieces for key in piece] == KEYS
    assert work.sizes == [8, 16, 32, 32, 12]


async def test_slow_pieces_shrink_before_they_reach_the_time_limit() -> None:
    work = Work(each_s=0.4)
    assert await pieces(work).run(KEYS, work) == {}
    assert work.sizes == [8] + [4] * 23


async def test_a_program_that_starts_slowly_is_not_started_more_often_for_it() -> None:
    work = Work(start_s=3.0)
    assert await pieces(work).run(KEYS, work) == {}
    assert work.sizes == [8, 4, 8, 16, 32, 32]


async def test_pieces_shrink_for_what_each_job_takes_beside_a_slow_start() -> None:
    work = Work(start_s=3.0, each_s=0.2)
    assert await pieces(work).run(KEYS, work) == {}
    assert max(work.sizes) <= 16
    assert work.sizes[-2] in {4, 8}


async def test_work_of_several_calls_may_take_several_times_as_long() -> None:
    work = Work(each_s=0.2)
    await Pieces(8, 32, clock=lambda: work.now_s, calls=3).run(KEYS, work)
    assert work.sizes[:3] == [8, 16, 16]


async def test_a_piece_without_an_answer_ends_the_call_and_the_next_one_is_half_as_large() -> None:
    work = Work(each_s=2.0)
    split = pieces(work)
    with pytest.raises(SlurmUnavailableError):
        await split.run(KEYS, work)
    assert await split.run(KEYS, work) == {}
    assert work.sizes[:2] == [8, 4]


async def test_pieces_of_one_job_are_the_smallest() -> None:
    work = Work(each_s=100.0)
    split = pieces(work)
    for _ in range(6):
        with pytest.raises(SlurmUnavailableError):
            await split.run(KEYS, work)
    assert work.sizes == [8, 4, 2, 1, 1, 1]


@pytest.mark.parametrize("error", [SlurmUnavailableError("away"), SlurmReplyError("nonsense")])
async def test_what_worked_before_an_error_stays_done_and_the_rest_is_not_sent(error: Exception) -> None:
    calls: list[list[JobKey]] = []

    async def work(piece: list[JobKey]) -> Failures:
        calls.append(piece)
        if len(calls) == 2:
            raise error
        return {piece[0]: Failure("refused")}

    failures = await Pieces(8, 8).run(KEYS, work)
    assert failures[KEYS[0]] == Failure("refused")
    assert set(failures) == {KEYS[0], *KEYS[8:]}
    assert all(failures[key].unavailable for key in KEYS[8:])
    assert len(calls) == 2


async def test_jobs_that_fail_as_unavailable_end_the_call_as_an_error_does() -> None:
    calls: list[list[JobKey]] = []

    async def work(piece: list[JobKey]) -> Failures:
        calls.append(piece)
        return {piece[-1]: Failure("away", FailureReason.UNAVAILABLE)}

    split = Pieces(8, 8)
    failures = await split.run(KEYS, work)
    assert set(failures) == set(KEYS[7:])
    assert len(calls) == 1
    assert split.size == 4


# ---- the verbs by command line


class Slow(Slurmctld):
    """Carries out so many changes in one call; then the caller's time is over."""

    def __init__(self, most: int) -> None:
        super().__init__(*(held(raw, admin_comment=PIN_MARK) for raw in range(1, 101)))
        self.most = most
        self.timed_out = 0

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        lines = stdin.decode().splitlines()
        changes = [line for line in lines if line.startswith(("update", "release"))]
        if len(changes) > self.most:
            self.timed_out += 1
            await super().run(program, arguments, "".join(f"{line}\n" for line in changes[: self.most]).encode())
            raise SlurmUnavailableError("scontrol: no answer within 10 s")
        return await super().run(program, arguments, stdin)


async def test_a_burst_too_large_for_one_call_is_done_in_several() -> None:
    slurm = Slow(most=10)
    client = CommandLineClient(slurm, CLOCK, now=lambda: SUBMIT_S + 100.0)
    pins = [Pin(key, ("n1",), 1, ResourceRequest(1, 0, 1, 1, gpus_per_node=1)) for key in KEYS]
    left = pins
    for _ in range(40):
        try:
            failures = await client.pin(left)
        except SlurmUnavailableError:
            continue
        assert all(failure.unavailable for failure in failures.values())
        left = [pin for pin in left if pin.key in failures]
        if not left:
            break
    assert left == []
    assert all(slurm[key.job_id]["req_nodes"] == "n1" for key in KEYS)
    assert slurm.timed_out < 20


async def test_no_call_is_about_more_jobs_than_a_piece() -> None:
    slurm = Slow(most=1000)
    client = CommandLineClient(slurm, CLOCK, now=lambda: SUBMIT_S + 100.0)
    assert await client.hold(KEYS) == {}
    assert max(sum(line.startswith("update") for line in call) for call in slurm.calls) <= 64
    assert len(slurm.commands("update")) == len(KEYS)


async def test_a_slurmctld_that_dies_meanwhile_gets_only_one_more_call() -> None:
    slurm = Slow(most=1000)
    client = CommandLineClient(slurm, CLOCK, now=lambda: SUBMIT_S + 100.0)
    await client.snapshot()
    slurm.before = lambda line: setattr(slurm, "away", slurm.away or len(slurm.calls) == 3)
    failures = await client.hold(KEYS)
    assert set(failures) == set(KEYS[32:])
    assert all(failure.unavailable for failure in failures.values())
    assert len(slurm.calls) == 3


async def test_reads_come_in_pieces() -> None:
    slurm = Slurmctld(*(held(raw) for raw in range(1, 601)))
    found = await CommandLineClient(slurm, CLOCK).read([JobKey(str(raw), SUBMIT_S) for raw in range(1, 601)])
    assert len(found) == 600
    sizes = [sum(line.startswith("show job ") for line in call) for call in slurm.calls]
    assert (sizes[0], sum(sizes)) == (256, 600)  # the size of the next one depends on how busy the machine is


class DelaysSome(Work):
    """slurmctld carries out changes at once, but takes too long for those of some jobs."""

    def __init__(self, delayed: set[JobKey]) -> None:
        super().__init__()
        self.delayed = delayed
        self.done: set[JobKey] = set()

    async def __call__(self, piece: list[JobKey]) -> Failures:
        self.each_s = 100.0 if self.delayed.intersection(piece) else 0.0
        answer = await super().__call__(piece)
        self.done.update(piece)
        return answer


@pytest.mark.parametrize("delayed", [{1}, {1, 2, 3}, {100}, {1, 50, 100}, set(range(1, 100, 9))])
async def test_jobs_whose_changes_take_for_ever_do_not_keep_the_others_waiting(delayed: set[int]) -> None:
    work = DelaysSome({JobKey(str(raw), SUBMIT_S) for raw in delayed})
    some = pieces(work)
    others = set(KEYS) - work.delayed
    calls = 0
    while not others <= work.done:
        left = [key for key in KEYS if key not in work.done]
        try:
            found = await some.run(left, work)
        except SlurmUnavailableError:
            found = dict.fromkeys(left, Failure("no answer", FailureReason.UNAVAILABLE))
        assert work.delayed <= set(found)
        calls += 1
        assert calls <= 20 * len(delayed), "they are never reached"
    # and when slurmctld carries them out, they are done
    work.delayed = set()
    left = [key for key in KEYS if key not in work.done]
    assert await some.run(left, work) == {}
    assert work.done == set(KEYS)
    assert not some._unanswered


async def test_unanswered_jobs_are_forgotten_when_there_are_many() -> None:
    work = DelaysSome({JobKey(str(raw), SUBMIT_S) for raw in range(10_000)})
    some = pieces(work)
    for begin in range(0, 10_000, 100):
        with pytest.raises(SlurmUnavailableError):
            await some.run([JobKey(str(raw), SUBMIT_S) for raw in range(begin, begin + 100)], work)
    assert len(some._unanswered) <= 4 * 512
