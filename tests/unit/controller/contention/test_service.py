"""Effects of the threshold's judgement: advice to users, preemptions that begin, and the policies' answers to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.admin.explain.advice_text import advice_messages, with_advice
from controller.admin.explain.explain import Explained
from controller.base.errors import PreemptionRefusedError
from controller.contention.service import ContentionService, judge_contention
from controller.cycle.decision.plan import Plan
from controller.preempt.preemptibility import Preemptibility
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey, own_nodes
from controller.slurm.embedded import ClusterDescription, NodeDescription
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, SlurmJob
from controller.state.preemption import Cause, Preemption, RelocationConstraint, Stage
from policies.model import ClusterState
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.examples.slowed import ALWAYS, WINDOW_S, known, pace, preemption
from tests.unit.controller.worlds.controller_world import ControllerWorld
from tests.unit.policies.processes import eventually

EIGHT = NodeDescription(names="n[1-8]", gpus=8)


@dataclass
class Begun:
    """Stands for `PreemptionManager`: records the requests."""

    refuse: str = ""
    requests: list[tuple[str, Cause, str, RelocationConstraint]] = field(default_factory=list)
    rows: list[Preemption] = field(default_factory=list)

    @property
    def open(self) -> dict[int, Preemption]:
        return {row.raw_id: row for row in self.rows if row.open}

    def since(self, time_s: float) -> list[Preemption]:
        return [row for row in self.rows if row.asked_s >= time_s]

    def preemptibility(self, job: SlurmJob) -> Preemptibility:
        return ALWAYS

    def silent(self, snapshot: SlurmSnapshot) -> frozenset[str]:
        return frozenset()

    def begin(self, job: SlurmJob, cause: Cause, why: str, elsewhere: RelocationConstraint) -> None:
        if self.refuse:
            raise PreemptionRefusedError(job.key.job_id, self.refuse)
        self.requests.append((job.key.job_id, cause, why, elsewhere))
        assert job.raw_id is not None
        self.rows.append(preemption(len(self.rows) + 1, job.raw_id, 1.7e9 + 100, Stage.ASKED))


class Shared:
    """A world in which two jobs run on the same two of four nodes, and a judge of it."""

    def __init__(self, folder: Path, mode: str, **changes: Any) -> None:
        settings = {
            "preemption": mode,
            "contention_sustained_s": 60,
            "preemption_min_run_s": 60,
            **changes.pop("settings", {}),
        }
        self.world = ControllerWorld(folder, endpoint=FakeEndpoint(away=True), settings_changes=settings, **changes)
        self.begun = self.world.preemptions = Begun()  # type: ignore[assignment]
        self.judging = ContentionService(self.world, WINDOW_S)  # type: ignore[arg-type]

    async def start(self) -> tuple[JobKey, JobKey]:
        first, second = (self.world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2) for _ in range(2))
        await self.world.go_on(90)
        assert self.world.nodes(first) == self.world.nodes(second) == {"n1": 4, "n2": 4}
        self.ids = int(first.job_id), int(second.job_id)
        return first, second

    async def pass_windows(self, number: int, first: float = 1.6, second: float = 1.8) -> None:
        """So many windows with these CS, each judged after a cycle."""
        a, b = self.ids
        for _ in range(number):
            start_s = self.world.clock.now()
            await self.world.clock.advance(WINDOW_S)
            paces = known(pace(a, first, b, start_s=start_s), pace(b, second, a, start_s=start_s))
            self.world.know(paces)
            await self.world.turn()
            await self.look()

    async def look(self) -> None:
        assert self.world.last is not None
        await self.judging.judge(self.world.last)

    def events(self) -> list[tuple[str, str]]:
        return [(event.job_id, event.text) for event in self.world.events.recent() if event.kind == "advice"]


async def test_automatic_moves_one_of_two_and_then_waits(tmp_path: Path) -> None:
    shared = Shared(tmp_path, "automatic")
    await shared.start()
    await shared.pass_windows(1)
    assert (shared.begun.requests, shared.judging.stays) == ([], {})
    await shared.pass_windows(3)
    ((job_id, cause, why, elsewhere),) = shared.begun.requests
    assert (job_id, cause, sorted(elsewhere.avoid)) == ("2", Cause.THRESHOLD, ["n1", "n2"])
    assert why.startswith("it trains at 3 steps/s, 1.80 times slower than alone")
    assert not why.endswith(".")
    # the other is not judged before it is known how it does alone
    assert shared.judging.advice == {}
    assert "job 2 is being preempted" in shared.judging.stays[RunKey(1, 0)]


async def test_advice_is_reported_once_and_removed_when_it_no_longer_holds(tmp_path: Path) -> None:
    shared = Shared(tmp_path, "advise")
    _, second = await shared.start()
    await shared.pass_windows(2)
    (standing,) = shared.judging.advice.values()
    since_s = standing.since_s
    await shared.pass_windows(3, first=1.9)
    # then it is the same job, though the other is slower now
    (standing,) = shared.judging.advice.values()
    assert (standing.advice.job.key, standing.since_s) == (second, since_s)
    assert shared.begun.requests == []
    ((job_id, text),) = shared.events()
    assert job_id == "2"
    assert text.startswith("should be moved to n3,n4: it trains at 3 steps/s, 1.80 times slower than alone")
    # and why and status say it
    (message,) = advice_messages(shared.judging)
    assert (message.job_id, list(message.nodes), list(message.avoid)) == ("2", ["n3", "n4"], ["n1", "n2"])
    said = with_advice(Explained("2", "running", "Runs.", {"user": "ann"}), shared.judging, standing.advice.job)
    assert said.sentence.startswith("Runs. It should be moved to n3,n4: it trains at")
    assert said.sentence.endswith("n3,n4 are free.")
    assert (said.facts["user"], said.facts["advice"], said.facts["advice_nodes"]) == ("ann", "move", "n3,n4")
    # when they are in nobody's way
    await shared.pass_windows(1, first=1.1, second=1.1)
    assert (shared.judging.advice, shared.judging.stays) == ({}, {})
    # and come again: that is new
    await shared.pass_windows(2)
    assert len(shared.events()) == 2


async def test_with_the_mode_off_there_is_no_advice(tmp_path: Path) -> None:
    shared = Shared(tmp_path, "off")
    await shared.start()
    await shared.pass_windows(4)
    assert (shared.begun.requests, shared.events(), shared.judging.advice, shared.judging.stays) == ([], [], {}, {})


async def test_a_move_that_cannot_be_made_is_explained_for_the_job(tmp_path: Path) -> None:
    shared = Shared(tmp_path, "automatic")
    _, second = await shared.start()
    shared.begun.refuse = "could save, but the agent of n1 is not connected"
    await shared.pass_windows(2)
    assert shared.judging.stays == {RunKey(2, 0): f"job 2 {shared.begun.refuse}"}
    job = (await shared.world.client.read([second]))[second]
    said = with_advice(Explained("2", "running", "Runs."), shared.judging, job)
    assert said.sentence == f"Runs. It should be moved, but cannot be moved now: job 2 {shared.begun.refuse}."
    assert said.facts["advice_why_not"] == f"job 2 {shared.begun.refuse}"


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip"])
async def test_a_job_that_would_wait_behind_others_is_not_stopped(tmp_path: Path, policy: str) -> None:
    # given one job that waits for all nodes, and came before the two that share some
    shared = Shared(tmp_path, "automatic", policy=policy)
    world = shared.world
    blocker = world.sbatch(duration_s=1e6, gpus_per_node=8, nodes=4, begin_time_s=world.clock.now() + 60)
    await shared.start()
    assert not world.nodes(blocker)
    await shared.pass_windows(4)
    if policy == "fifo":
        # then strict order would not let them in again
        assert shared.begun.requests == []
        assert shared.judging.stays[RunKey(3, 0)] == "job 3 fits on other nodes, but the policy would let it wait"
    else:
        assert [job_id for job_id, *_ in shared.begun.requests] == ["3"]


async def test_a_bug_leaves_no_advice_of_the_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(tmp_path, "advise")
    await shared.start()
    async with judge_contention(shared.world, WINDOW_S) as judging:  # type: ignore[arg-type]
        shared.judging = judging
        await shared.pass_windows(2)
        assert shared.judging.advice

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("controller.contention.service.judge_case", broken)
        await shared.world.turn()
        await eventually(lambda: nothing(shared.judging))
        # and the next look is as ever
        monkeypatch.undo()
        await shared.world.turn()
        await eventually(lambda: something(shared.judging))
    assert shared.world.listeners == []


async def nothing(judging: ContentionService) -> bool:
    return not judging.advice


async def something(judging: ContentionService) -> bool:
    return bool(judging.advice)


async def test_one_move_is_rehearsed_in_each_judgement_and_none_again_for_a_while(tmp_path: Path) -> None:
    # given two pairs of jobs in each other's way
    shared = Shared(tmp_path, "advise", policy="fifo-skip", description=ClusterDescription(nodes=(EIGHT,)))
    world, states = shared.world, []
    await shared.start()
    others = [world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2) for _ in range(2)]
    await world.go_on(90)
    c, d = (int(key.job_id) for key in others)
    rehearse = world.decider.rehearse

    async def noted(state: ClusterState) -> Plan | None:
        states.append(state)
        return await rehearse(state)

    world.decider.rehearse = noted  # type: ignore[method-assign]
    a, b = shared.ids
    for number in range(1, 4):
        start_s = world.clock.now()
        await world.clock.advance(WINDOW_S)
        pairs = ((a, b), (b, a), (c, d), (d, c))
        world.know(known(*(pace(one, 2.0, other, start_s=start_s) for one, other in pairs)))
        await world.turn()
        await shared.look()
        # then after each window one more is advised
        assert len(shared.judging.advice) == min(max(number - 1, 0), 2)
    assert len(states) == 2
    assert len({standing.advice.place.nodes for standing in shared.judging.advice.values()}) == 2
    # and after a while again, the oldest first
    for _ in range(5):
        await shared.look()
    assert len(states) == 3
    assert len(shared.judging.advice) == 2


async def test_with_preemption_off_no_places_are_searched_but_slow_jobs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path, "off")
    await shared.start()
    with monkeypatch.context() as patched:
        patched.setattr("controller.contention.service.Relocations", lambda *_: pytest.fail("looked for places"))
        await shared.pass_windows(4)
    # when a reload turns it on
    shared.world.settings = shared.world.settings.model_copy(update={"preemption": "advise"})
    await shared.look()
    # then the past counts
    assert len(shared.judging.advice) == 1


@dataclass
class StoreOfAgents:
    """Stands for the agents' server: gives access to a store of profiles."""

    store: ProfileStore

    async def use_store(self, work: Callable[[ProfileStore], Any]) -> Any:
        return work(self.store)


async def test_the_links_of_the_store_decide_which_places_are_free(tmp_path: Path) -> None:
    # given agents, and a store of profiles in which all nodes share one link
    shared = Shared(tmp_path, "advise")
    await shared.start()
    store = ProfileStore(tmp_path / "profiles.sqlite")
    shared.judging = ContentionService(shared.world, WINDOW_S, StoreOfAgents(store))  # type: ignore[arg-type]
    store.use_links(lambda nodes: {*nodes, "trunk"})

    # when two jobs slow each other down
    await shared.pass_windows(3)

    # then no place is free of the shared link, and neither is to be moved
    assert shared.judging.advice == {}
    assert set(shared.judging.stays) == {RunKey(1, 0), RunKey(2, 0)}

    # when only nodes are shared, a move is advised
    store.use_links(own_nodes)
    await shared.pass_windows(1)
    assert shared.judging.advice
    store.close()
