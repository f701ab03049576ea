"""The learner beside the decisions: when it trains, what it promotes, and what it survives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from policies.errors import TrainingError
from policies.learned.dl2.learning.attempts import NEW_JOBS
from policies.learned.dl2.learning.feedback.network_copy import CRITIC_UPDATES, FEEDBACK_UPDATES
from policies.learned.dl2.learning.history import FORMAT, HistoryLimits, read_history
from policies.learned.dl2.learning.learner import ContinuedLearning
from policies.learned.dl2.learning.progress import Progress
from policies.learned.dl2.learning.replay_trace import FEWEST_JOBS
from policies.learned.dl2.learning.result import FAILED, NOT_BETTER, PROMOTED, STOPPED, AttemptResult
from policies.learned.dl2.learning.service import Weights
from policies.learned.dl2.learning.settings import LearnSettings
from policies.learned.dl2.policy import Dl2
from policies.learned.evaluation import promotion
from policies.learned.training.run.folder_lock import locked
from tests.unit.policies.learned.dl2.learning.examples import BEGUN_S, outcomes
from tests.unit.policies.learned.dl2.learning.test_service import SHIPPED, candidate, service
from tests.unit.policies.states.cluster import Job, Node, cluster

STATE = cluster([Node(4)] * 2, [Job(gpus=1, sizes=(1, 8))])
DAY_S = 86400.0
BETTER = AttemptResult(result=PROMOTED, jobs=300, newest_s=1.0, windows=6, change=-0.2, ci95=0.1)


class Scripted:
    """A training process that ends as the test says."""

    def __init__(self) -> None:
        self.starts: list[Path] = []
        self.code: int | None = None
        self.killed = 0
        self.result: AttemptResult | bytes | None = None
        self.factor = 2.0
        self.error: OSError | None = None
        self.rounds: list[int] = []
        """Rounds of each start; 0: the candidate is there already."""

    def start(self, folder: Path, settings: LearnSettings, history: Path, _progress: Progress) -> Scripted:
        self.rounds.append(settings.rounds)
        if self.error is not None:
            raise self.error
        assert len(read_history(history)[0]) >= FEWEST_JOBS
        assert settings.folder in folder.parents
        self.starts.append(folder)
        self.code = None
        return self

    def ends(self, result: AttemptResult | bytes | None, code: int = 0) -> None:
        """End with this result; a promotion has the candidate and the parent that the files have."""
        folder = self.starts[-1]
        if isinstance(result, AttemptResult):
            parent = service(folder / "parent").load().card.weights_sha256
            digest = candidate(folder / "training", self.factor)
            result = replace(result, parent=result.parent or parent, candidate=result.candidate or digest).to_json()
        if result is not None:
            (folder / "result.json").write_bytes(result)
        self.code = code

    def exit_code(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.killed += 1
        self.code = -9


class World:
    """A learner whose clock and process the test holds. Invariant: `served` has the weights in service, the last one now."""

    def __init__(self, folder: Path, every_s: float = DAY_S) -> None:
        self.folder = folder
        self.now_s = BEGUN_S + 1e6
        self.process = Scripted()
        self.served: list[Weights] = []
        self.count = 0
        self.settings = LearnSettings(
            folder=folder, every_s=every_s, limits=HistoryLimits(5000, 1e9), rounds=2, longest_s=3600.0, memory_mib=1024
        )
        self.learner = self.restarted()

    def restarted(self) -> ContinuedLearning:
        weights = service(self.folder).load()
        self.learner = ContinuedLearning(
            self.settings,
            service(self.folder),
            weights,
            self.served.append,
            slot_s=1200.0,
            start=self.process.start,
            now=lambda: self.now_s,
        )
        return self.learner

    def jobs(self, count: int) -> World:
        """Let so many jobs end, and one decision be made."""
        self.learner.see(STATE)
        for outcome in outcomes(count, BEGUN_S, self.count):
            self.learner.learn(replace(outcome, finish_time_s=min(outcome.finish_time_s, self.now_s)))
        self.count += count
        self.learner.cycle()
        return self

    def feedback(self) -> World:
        """Let the copy make a step that changes its policy network, as if it had samples enough."""
        copy = self.learner._feedback.copy
        copy.updates = max(copy.updates, CRITIC_UPDATES) + 1
        return self

    @property
    def result(self) -> tuple[str, str]:
        status = self.learner.status()
        return status.last_result, status.last_reason

    @property
    def digest(self) -> str:
        return self.learner.status().weights_sha256


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "learn")
    yield made
    made.learner._stack.close()


def test_an_attempt_begins_when_there_is_enough_history_and_then_once_a_day(world: World) -> None:
    world.jobs(FEWEST_JOBS - 1)
    assert not world.process.starts
    world.jobs(1)
    assert len(world.process.starts) == 1
    assert world.learner.status().training
    assert (world.process.starts[0] / "cluster.toml").read_text().count("[[nodes]]") == 1
    # when it has ended, the next one begins a day later, if enough jobs have ended since
    world.process.ends(replace(BETTER, result=NOT_BETTER, reason="worse", change=0.1, ended_s=world.now_s))
    world.jobs(NEW_JOBS)
    assert world.result == (NOT_BETTER, "worse")
    world.jobs(0)
    assert len(world.process.starts) == 1
    world.now_s += DAY_S
    world.jobs(0)
    assert len(world.process.starts) == 2
    world.process.ends(replace(BETTER, result=NOT_BETTER, ended_s=world.now_s))
    world.jobs(NEW_JOBS - 1)
    world.now_s += DAY_S
    world.jobs(0)
    assert len(world.process.starts) == 2
    # also after a restart
    world.learner._stack.close()
    world.restarted()
    world.jobs(0)
    assert world.learner.status().attempts == 2
    assert len(world.process.starts) == 2


def test_what_was_learned_from_rewards_and_what_replays_teach_are_compared_in_turns(world: World) -> None:
    worse = replace(BETTER, result=NOT_BETTER, reason="worse", change=0.1, ci95=0.2)
    rounds = world.settings.rounds
    for number, expected in enumerate((rounds, 0, rounds, 0)):
        # given that the copy had no updates from rewards before the first attempt, and then more in each turn
        if number:
            world.feedback()
        world.now_s += DAY_S
        world.jobs(NEW_JOBS if number else FEWEST_JOBS)
        assert world.process.rounds[number:] == [expected]
        candidate_there = (world.process.starts[-1] / "training" / "best" / "dl2.json").exists()
        assert candidate_there == (expected == 0)
        world.process.ends(replace(worse, ended_s=world.now_s))
        world.jobs(0)
    # when the copy has not changed since it was compared, no attempt is lost on it
    for _ in range(2):
        world.now_s += DAY_S
        world.jobs(NEW_JOBS)
        world.process.ends(replace(worse, ended_s=world.now_s))
        world.jobs(0)
    assert world.process.rounds[-2:] == [rounds, rounds]


@pytest.mark.parametrize(("change", "stays"), [(0.1, True), (0.3, False)])
def test_a_copy_that_is_clearly_worse_begins_anew(world: World, change: float, *, stays: bool) -> None:
    copy = world.feedback().learner._feedback.copy
    world.jobs(FEWEST_JOBS)
    world.process.ends(replace(BETTER, result=NOT_BETTER, reason="worse", change=change, ci95=0.2, ended_s=world.now_s))
    world.jobs(0)
    assert (world.learner._feedback.copy is copy) == stays


def test_a_better_copy_is_promoted_and_the_next_one_begins_with_it(world: World) -> None:
    copy = world.feedback().learner._feedback.copy
    world.jobs(FEWEST_JOBS)
    (folder,) = world.process.starts
    there = service(folder / "training").load().card
    assert there.recipe[FEEDBACK_UPDATES] == 1
    world.process.ends(BETTER)
    world.jobs(0)
    assert world.result == (PROMOTED, "")
    assert world.learner._feedback.copy is not copy
    assert world.learner._feedback.copy._card == world.served[-1].card


def test_jobs_that_ended_too_long_ago_do_not_make_an_attempt_due(world: World) -> None:
    world.settings = replace(world.settings, limits=HistoryLimits(5000, 30 * DAY_S))
    world.restarted()
    world.jobs(FEWEST_JOBS - 1)
    # given that all but the last jobs are a month old when the next ones end
    world.now_s += 30 * DAY_S
    for outcome in outcomes(NEW_JOBS, world.now_s - 1e5, FEWEST_JOBS):
        world.learner.learn(outcome)
    world.jobs(0)
    # then there is no attempt, and operators see why
    assert not world.process.starts
    assert world.learner.status().problem == (
        f"{NEW_JOBS} of {FEWEST_JOBS - 1 + NEW_JOBS} jobs of the history have ended within learn_days (30 days); "
        f"{FEWEST_JOBS} are needed"
    )
    # until enough jobs have ended
    for outcome in outcomes(FEWEST_JOBS, world.now_s - 2e5, 2 * FEWEST_JOBS):
        world.learner.learn(replace(outcome, finish_time_s=min(outcome.finish_time_s, world.now_s)))
    world.jobs(0)
    assert len(world.process.starts) == 1
    assert world.learner.status().problem == ""


def test_better_weights_are_swapped_in_and_stay(world: World) -> None:
    world.jobs(FEWEST_JOBS)
    world.process.ends(BETTER)
    world.jobs(0)
    status = world.learner.status()
    assert (status.last_result, status.promotions, status.change, status.ci95) == (PROMOTED, 1, -0.2, 0.1)
    assert len(world.served) == 1
    assert world.served[0].card.weights_sha256 == world.digest != SHIPPED[1].weights_sha256
    assert status.weights_since_s > 0
    world.learner._stack.close()
    promoted = world.digest
    world.restarted().cycle()
    assert (world.digest, world.learner.status().promotions) == (promoted, 1)


@pytest.mark.parametrize(
    ("result", "code", "reason"),
    [
        (replace(BETTER, result=NOT_BETTER), 0, ""),
        (replace(BETTER, change=-0.1, ci95=0.1), 0, "not below zero"),
        (replace(BETTER, change=-0.11, ci95=0.1), 0, "not below zero"),
        (replace(BETTER, ci95=None), 0, "not below zero"),
        (replace(BETTER, windows=4), 0, "too few windows"),
        (replace(BETTER, parent="f" * 64), 0, "changed while it trained"),
        (replace(BETTER, candidate="f" * 64), 0, "not those that were compared"),
        (b"{}", 0, "other keys"),
        (b"\0" * 100_000, 0, "not JSON"),
        (None, 0, "No such file"),
        (BETTER, 1, "ended with code 1"),
        (BETTER, -9, "by SIGKILL"),
    ],
)
def test_nothing_else_is_promoted(world: World, result: AttemptResult | bytes | None, code: int, reason: str) -> None:
    world.jobs(FEWEST_JOBS)
    world.process.ends(result, code)
    world.jobs(0)
    assert not world.served
    assert world.digest == SHIPPED[1].weights_sha256
    assert world.result[0] in {NOT_BETTER, FAILED}
    assert reason in world.result[1]
    assert (world.learner.status().attempts, world.learner.status().promotions) == (1, 0)


def test_each_comparison_needs_a_clearer_result_than_the_one_before(world: World) -> None:
    # given three comparisons without a promotion, and attempts without a comparison
    world.jobs(FEWEST_JOBS)
    for change in (0.1, 0.1, None, 0.1, None):
        world.process.ends(replace(BETTER, result=NOT_BETTER, change=change, ended_s=world.now_s))
        world.now_s += DAY_S
        world.jobs(NEW_JOBS)
        world.jobs(0)
    # when the fourth has a result that would have been enough for the first
    world.process.ends(BETTER)
    world.jobs(0)
    assert world.result[0] == FAILED
    assert "not below zero" in world.result[1]
    assert not world.served


def test_an_attempt_that_takes_too_long_is_killed(world: World) -> None:
    world.jobs(FEWEST_JOBS)
    world.now_s += 3601
    world.jobs(0)
    assert world.process.killed == 1
    assert world.result == (STOPPED, "it took longer than 3600 s")


def test_a_process_that_cannot_start_counts_as_an_attempt(world: World) -> None:
    world.process.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        world.jobs(FEWEST_JOBS)
    assert world.result[0] == FAILED
    world.jobs(0)
    assert world.learner.status().attempts == 1


def test_an_operator_who_changes_the_weights_is_followed(world: World) -> None:
    world.jobs(FEWEST_JOBS)
    world.process.ends(BETTER)
    world.jobs(0)
    first = world.digest
    promotion.return_to_shipped(world.folder)
    world.jobs(0)
    assert world.digest == SHIPPED[1].weights_sha256 == world.served[-1].card.weights_sha256
    assert world.learner.status().weights_since_s == 0
    promotion.undo(world.folder)
    world.jobs(0)
    assert world.digest == first


def test_weights_that_change_during_an_attempt_are_not_replaced(world: World) -> None:
    world.jobs(FEWEST_JOBS)
    candidate(world.folder, 5.0)
    world.jobs(0)
    other = world.digest
    assert other != SHIPPED[1].weights_sha256
    world.process.ends(BETTER)
    world.jobs(0)
    assert (world.digest, world.result[0]) == (other, FAILED)
    assert "changed while it trained" in world.result[1]


def test_absurd_outcomes_are_counted_and_not_recorded(world: World) -> None:
    world.jobs(1)
    good = outcomes(1, BEGUN_S)[0]
    for number, values in enumerate(
        ({"service_s": 1e18}, {"num_gpus": 0}, {"finish_time_s": 4e9}, {"job_id": "x" * 4000})
    ):
        world.learner.learn(replace(good, **{"job_id": f"bad{number}", **values}))  # type: ignore[arg-type]
    world.jobs(1)
    status = world.learner.status()
    assert (status.history_jobs, status.outcomes_refused) == (2, 4)


def test_outcomes_are_bounded_while_the_folder_cannot_be_used(world: World) -> None:
    for outcome in outcomes(20_005, BEGUN_S):
        world.learner.learn(outcome)
    assert world.learner.status().outcomes_refused == 5


def test_a_folder_that_another_server_uses_is_left_alone_and_tried_again(tmp_path: Path) -> None:
    @contextmanager
    def elsewhere() -> Iterator[None]:
        with locked(tmp_path / "learn"):
            yield

    other = elsewhere()
    other.__enter__()
    world = World(tmp_path / "learn")
    with pytest.raises(TrainingError, match="nothing is learned"):
        world.jobs(FEWEST_JOBS)
    world.jobs(0)
    assert not world.process.starts
    other.__exit__(None, None, None)
    world.now_s += 61
    world.jobs(0)
    # what has ended meanwhile was kept
    assert world.learner.status().history_jobs == FEWEST_JOBS
    world.learner._stack.close()


def test_a_history_of_another_version_stops_the_learning_alone(tmp_path: Path) -> None:
    (tmp_path / "learn").mkdir()
    (tmp_path / "learn" / "history.log").write_bytes(FORMAT.replace(b" 2", b" 9"))
    policy = Dl2(learn=str(tmp_path / "learn"))
    assert policy._learning is not None
    policy._learning._cycle_s = 0.01
    policy.begin()
    problem = ""
    for _ in range(500):
        status = policy.learning()
        assert status is not None
        if problem := status.problem:
            break
        threading.Event().wait(0.02)
    assert "move it away" in problem
    assert policy.decide(STATE).allocation
    policy.end()
    policy._learning._thread.join(60)  # the end does not wait for it longer than three seconds
    assert not policy._learning._thread.is_alive()


def test_a_defect_does_not_end_the_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    calls = threading.Semaphore(0)

    def broken() -> None:
        calls.release()
        raise ZeroDivisionError("defect")

    monkeypatch.setattr(world.learner, "cycle", broken)
    monkeypatch.setattr(world.learner, "_cycle_s", 0.01)
    world.learner.begin()
    assert calls.acquire(timeout=30)
    assert calls.acquire(timeout=30)
    assert "defect" in world.learner.status().problem
    world.learner.end()


@pytest.mark.parametrize("cycles", [0, 1])
def test_jobs_that_end_just_before_a_stop_are_recorded(tmp_path: Path, cycles: int) -> None:
    # given a thread that has made one cycle, or none, and sleeps until the next one
    world = World(tmp_path / "learn")
    for _ in range(cycles):
        world.learner.cycle()
    world.learner._cycle_s = 3600.0
    world.learner.begin()
    # when jobs end and then the server
    world.learner.see(STATE)
    for outcome in outcomes(3, BEGUN_S):
        world.learner.learn(outcome)
    world.learner.end()
    world.learner._thread.join(60)  # the end does not wait for it longer than three seconds
    assert not world.learner._thread.is_alive()
    # then they are in the history, and the folder is free for the next server
    assert len(read_history(tmp_path / "learn" / "history.log")[0]) == 3
    with locked(tmp_path / "learn"):
        pass


def test_a_stop_beside_a_server_that_holds_the_folder_records_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "learn")
    with locked(tmp_path / "learn"):
        world.learner._cycle_s = 3600.0
        world.learner.begin()
        world.learner.learn(outcomes(1, BEGUN_S)[0])
        world.learner.end()
    world.learner._thread.join(60)  # the end does not wait for it longer than three seconds
    assert not world.learner._thread.is_alive()
    assert not (tmp_path / "learn" / "history.log").exists()


def test_learning_is_off_by_default_and_its_options_are_checked(tmp_path: Path) -> None:
    assert Dl2().learning() is None
    Dl2().begin()
    Dl2().end()
    for options, problem in (
        ({"learn": "here"}, "absolute path"),
        ({"learn": str(tmp_path), "learn_every_s": -1}, "learn_every_s"),
        ({"learn": str(tmp_path), "learn_jobs": 10}, "learn_jobs"),
        (
            {"learn": str(tmp_path), "learn_jobs": 10**6},
            "learn_jobs is 1000000; give a whole number, 250 or more, 100000 at most",
        ),
        ({"learn": str(tmp_path), "learn_days": 0}, "learn_days"),
        ({"learn": str(tmp_path), "learn_rounds": 1}, "learn_rounds"),
        ({"learn": str(tmp_path), "learn_memory_mib": 1}, "learn_memory_mib"),
        ({"learn": str(tmp_path), "learn_memory_mib": 1 << 50}, "learn_memory_mib"),
    ):
        with pytest.raises(ValueError, match=problem):
            Dl2(**options)  # type: ignore[arg-type]
