"""The controller killed at every point of a preemption: the next controller goes on, and the job is finished once."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import controller.state.journal_file
from controller.slurm.model.job import JobKey, Phase
from controller.state.preemption import Cause, Preemption, RelocationConstraint, Stage
from protos.headway.v1 import agent_pb2
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.controller.worlds.preempted import NS

PARTS = 6
"""Number of parts that the points of a kill are split into, so that no test takes long."""
NODES = ("n1", "n2")
CHANGES = frozenset({"snapshot", "read", "hold", "unmark", "mark", "pin", "unpin", "release", "signal", "requeue_hold"})


class Killed(BaseException):
    """kill -9: nothing of the controller that catches errors gets to see it."""


@dataclass
class Knife:
    """Falls at the moments of those numbers."""

    at: Collection[int] = ()
    moments: int = 0
    sharp: bool = False
    where: list[str] = field(default_factory=list)

    def __call__(self, what: str) -> None:
        if not self.sharp:
            return
        self.moments += 1
        if self.moments in self.at:
            self.where.append(what)
            raise Killed(what)


class CutClient:
    """A client that the knife may fall before and after each verb of."""

    def __init__(self, inner: Any, knife: Knife, before_stop: Callable[[Collection[JobKey]], None]) -> None:
        self._inner, self._knife, self._before_stop = inner, knife, before_stop

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name not in CHANGES:
            return verb

        async def cut(*arguments: Any, **options: Any) -> Any:
            self._knife(f"before {name}")
            if name == "requeue_hold":
                self._before_stop(arguments[0])
            found = await verb(*arguments, **options)
            self._knife(f"after {name}")
            return found

        return cut


class Fleet:
    """The agents of two nodes, and a job of theirs that trains a step a second, saves when it is asked, and stands still."""

    def __init__(self, world: ControllerWorld, knife: Knife) -> None:
        self.world, self._knife = world, knife
        self.nodes = {node: SimpleNamespace(connected=True) for node in ("n1", "n2", "n3", "n4")}
        self.steps: dict[int, int] = {}
        """By run."""
        self.standing_at: int | None = None
        self._run = 0
        self._asked: dict[str, set[str]] = {}
        self._answers: list[tuple[str, agent_pb2.AgentReport]] = []

    def send_command(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        self._knife(f"telling {node}")
        if command.WhichOneof("what") == "go_on":
            self.standing_at = None
        elif command.job.restart == self.restarts:
            heard = self._asked.setdefault(command.id, set())
            heard.add(node)
            if heard == self.here:
                self.standing_at = self.steps.get(self.restarts, 0)
                self._answers += [(each, self._saved(command.id, each)) for each in sorted(heard)]
        return True

    @property
    def job(self) -> Any:
        return self.world.slurm.job("1")

    @property
    def restarts(self) -> int:
        return int(self.job.restarts)

    @property
    def here(self) -> set[str]:
        return {share.node for share in self.job.allocated}

    def _saved(self, id_: str, node: str) -> agent_pb2.AgentReport:
        saved = agent_pb2.SavedRanks(ranks=self._ranks(node), world_size=8, step=self.standing_at or 0)
        return agent_pb2.AgentReport(answer=agent_pb2.CommandAnswer(id=id_, accepted=True, saved=saved))

    def _ranks(self, node: str) -> range:
        first = 4 * sorted(self.here).index(node)
        return range(first, first + 4)

    def train(self) -> None:
        """A second passes. A new run does not stand still."""
        if self.restarts not in {0, self._run}:
            self._run, self.standing_at = self.restarts, None
        if self.job.phase is Phase.RUNNING and self.standing_at is None:
            self.steps[self.restarts] = self.steps.get(self.restarts, 0) + 1

    def train_on(self) -> None:
        """Let the ranks train on: they have waited for long enough without a command."""
        self.standing_at = None
        self._answers.clear()

    def report(self) -> None:
        """Send the agents' regular reports, and their answers."""
        if self.job.phase is Phase.RUNNING:
            for node in sorted(self.here):
                self.world.preemptions.on_report(node, self._job_report(node))
        while self._answers:
            self.world.preemptions.on_report(*self._answers.pop(0))

    def _job_report(self, node: str) -> agent_pb2.AgentReport:
        job = agent_pb2.JobReport(
            job=agent_pb2.JobName(job_id=1, restart=self.restarts),
            ranks=self._ranks(node),
            world_size=8,
            monotonic_ns=9 * NS,
        )
        job.checkpoint.ranks.extend(self._ranks(node))
        if self.steps.get(self.restarts):
            job.steps, job.first_step_ns = self.steps[self.restarts], 9 * NS
        if self.restarts:
            job.checkpoint.restored_step = self.steps[0]
        return agent_pb2.AgentReport(job=job)

    def must_stand(self, keys: Collection[JobKey]) -> None:
        """Check that no job is stopped that has trained on since it saved."""
        assert [key.job_id for key in keys] == ["1"]
        if self.restarts == 0 and self.job.phase is Phase.RUNNING:
            assert self.standing_at == self.steps.get(0, 0), "stopped while it trained"


@dataclass
class Story:
    """A job of forty seconds that is moved off its first node after five."""

    folder: Path
    knife: Knife
    signal: bool = False

    async def tell(self) -> Preemption:
        """Until everything is over, however often the controller is killed. Gives the preemption as the journal has it."""
        world = self.world = world_in(self.folder)
        world.endpoint.away = True
        fleet = self.fleet = Fleet(world, self.knife)
        world.slurm.client = CutClient(world.slurm.client, self.knife, fleet.must_stand)  # type: ignore[assignment]
        self._start_anew()
        comment = "headway=preemptible" if self.signal else ""
        world.sbatch(40.0, gpus_per_node=4, nodes=2, comment=comment, traps=frozenset({"USR1"}))
        for _ in range(5):
            await self._second()
        self.knife.sharp = True
        for _ in range(150):
            try:
                self._ask()
                await self._second()
            except Killed:
                world.journal.close()
                fleet.train_on()
                self._start_anew()
            if world.phase(JobKey("1", 0)) is Phase.ENDED:
                break
        self.knife.sharp = False
        for _ in range(3):
            await self._second()
        (row,) = world.preemptions.newest(10)
        return row

    def _start_anew(self) -> None:
        self.world.restart()
        self.world.preemptions.serve(None if self.signal else self.fleet)

    def _ask(self) -> None:
        """The operator, until it was heard."""
        last = self.world.last
        if last is None or self.world.preemptions.newest(1) or not self.fleet.steps:
            return
        (job,) = (job for job in last.observation.snapshot.jobs if job.key.job_id == "1")
        if self.world.preemptions.preemptibility(job).may:
            self.world.preemptions.begin(job, Cause.OPERATOR, "by hand", RelocationConstraint(avoid=frozenset({"n1"})))

    async def _second(self) -> None:
        if not self.signal:
            self.fleet.report()
        elif self.fleet.job.signals and self.fleet.restarts == 0:
            self.world.slurm.requeue("1")
        self.world.preemptions.tick()
        if self.world.preemptions.wanted.is_set():
            await self.world.cycle.errands()
        await self.world.turn()
        await self.world.clock.advance(1.0)
        self.fleet.train()

    def finished_once(self) -> None:
        """The job did its work, and nothing is left to do for it."""
        job = self.fleet.job
        assert job.state == "COMPLETED"
        assert len(job.starts) == job.restarts + 1
        assert self.world.preemptions.open == {}
        assert self.world.journal.open_intents() == []


@pytest.fixture
def knife(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Knife]:
    """Knives that also fall before and after every write of the journal; the one made last counts."""
    made: list[Knife] = [Knife()]
    transaction = controller.state.journal_file.Transaction
    enter, leave = transaction.__enter__, transaction.__exit__

    def begin(self: Any) -> Any:
        made[-1]("before a write")
        return enter(self)

    def end(self: Any, *error: Any) -> None:
        leave(self, *error)
        if error[0] is None:
            made[-1]("after a write")

    monkeypatch.setattr(transaction, "__enter__", begin)
    monkeypatch.setattr(transaction, "__exit__", end)

    def make(*at: int) -> Knife:
        made.append(Knife(frozenset(at)))
        return made[-1]

    return make


def moved_once(story: Story, row: Preemption) -> None:
    story.finished_once()
    assert (row.stage, row.problem, row.step) == (Stage.RESUMED, "", story.fleet.steps[0])
    assert story.fleet.restarts == 1
    assert "n1" not in {share.node for share in story.fleet.job.starts[1][1]}


async def test_without_a_kill_it_is_moved_once(tmp_path: Path, knife: Callable[..., Knife]) -> None:
    story = Story(tmp_path, knife())
    row = await story.tell()
    moved_once(story, row)
    assert story.knife.moments > 60


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow if part % 2 else ()) for part in range(PARTS)]
)
async def test_killed_at_any_point_it_is_moved_once(tmp_path: Path, knife: Callable[..., Knife], part: int) -> None:
    whole = Story(tmp_path / "whole", knife())
    await whole.tell()
    for moment in range(1 + part, whole.knife.moments + 1, PARTS):
        story = Story(tmp_path / str(moment), knife(moment))
        row = await story.tell()
        try:
            moved_once(story, row)
        except AssertionError as error:
            raise AssertionError(f"killed at {moment} ({story.knife.where}): {row}") from error


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, PARTS))])
async def test_killed_again_and_again_it_is_moved_once(tmp_path: Path, knife: Callable[..., Knife], seed: int) -> None:
    choose = random.Random(seed)
    for turn in range(8):
        moments = sorted(choose.sample(range(1, 120), choose.randint(2, 6)))
        story = Story(tmp_path / str(turn), knife(*moments))
        row = await story.tell()
        try:
            moved_once(story, row)
        except AssertionError as error:
            raise AssertionError(f"killed at {moments} ({story.knife.where}): {row}") from error


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow if part % 2 else ()) for part in range(PARTS)]
)
async def test_killed_at_any_point_a_job_is_signalled_once_at_most(
    tmp_path: Path, knife: Callable[..., Knife], part: int
) -> None:
    whole = Story(tmp_path / "whole", knife(), signal=True)
    assert (await whole.tell()).stage is Stage.STARTED
    assert whole.fleet.job.signals == ["USR1"]
    for moment in range(1 + part, whole.knife.moments + 1, PARTS):
        story = Story(tmp_path / str(moment), knife(moment), signal=True)
        row = await story.tell()
        try:
            story.finished_once()
            assert story.fleet.job.signals in ([], ["USR1"])
            assert story.fleet.restarts == len(story.fleet.job.signals)
            assert row.stage is (Stage.STARTED if story.fleet.job.signals else Stage.OVER)
        except AssertionError as error:
            raise AssertionError(f"killed at {moment} ({story.knife.where}): {row}") from error
