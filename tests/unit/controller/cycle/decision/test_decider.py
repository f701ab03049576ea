"""Decisions of the policy server, and of the fallback when the server fails."""

import asyncio
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from controller.base.clock import VirtualClock
from controller.base.errors import PolicyUnavailableError
from controller.cycle.decision import decider as decider_module
from controller.cycle.decision.decider import Decider
from controller.observe.observer import Observer
from controller.state.ledger import Ledger
from policies.api import Decision, PolicySpec, load_policy
from policies.errors import PolicyFault, PolicyServerError
from policies.model import Placement
from tests.unit.controller.examples.build import job, request, snapshot


@dataclass
class FakeEndpoint:
    """A policy server that does what a test tells it."""

    address: str = "unix:///fake"
    placement: Placement = field(default_factory=lambda: Placement((0,), (1,)))
    guard: str = ""
    outside: str = ""
    away: bool = False
    sick: bool = False
    num_calls: int = 0
    closed: bool = False
    connection: int = 0
    connected: bool = True
    learned: list = field(default_factory=list)

    async def describe(self, deadline_s):
        self._answer()
        return PolicySpec(name="fake", source="tests", ordered_by="by name")

    async def healthy(self, deadline_s):
        return not self.sick

    async def decide(self, state, deadline_s):
        self.num_calls += 1
        self._answer()
        return Decision({0: self.placement}, guard=self.guard, outside=self.outside)

    async def learn(self, outcomes):
        self._answer()
        self.learned += outcomes
        return len(self.learned)

    async def close(self):
        self.closed = True

    def _answer(self):
        if self.away:
            raise PolicyServerError(PolicyFault.UNREACHABLE, self.address, "nobody listens")


@dataclass
class BrokenPolicy:
    """A fallback that raises."""

    spec: PolicySpec = field(default_factory=lambda: PolicySpec(name="broken", source="tests"))

    def decide(self, state):
        raise ZeroDivisionError("oh")


@pytest.fixture
def state():
    return Observer().observe(snapshot(job("1")), Ledger(), frozenset({"dl"})).state


def decider(endpoint, fallback=None, clock=None):
    return Decider(endpoint, fallback or load_policy("fifo"), 0.5, clock or VirtualClock())


async def test_the_policy_server_decides_while_it_can(state):
    decided = await (tested := decider(FakeEndpoint())).decide(state)
    assert (decided.policy, decided.problem, len(decided.plan.starts)) == ("fake", "", 1)
    assert decided.ordered_by == "by name"
    assert tested.serving


class OddRule:
    """A fallback of another package, whose attribute `rule` is no rule of Headway."""

    spec = PolicySpec(name="odd", source="tests")
    rule = "shortest"

    def decide(self, state):
        return load_policy("fifo").decide(state)


async def test_a_fallback_whose_rule_is_something_else_decides(state):
    decided = await decider(FakeEndpoint(away=True), OddRule()).decide(state)
    assert (decided.policy, len(decided.plan.starts), decided.ordered_by) == ("fallback:odd", 1, "")


async def test_decisions_of_a_learned_policys_guard_are_counted(state):
    endpoint = FakeEndpoint(guard="job 7 is overdue")
    tested = decider(endpoint)
    for _ in range(2):
        await tested.decide(state)
    assert (tested.counts.guarded, tested.guard) == (2, "job 7 is overdue")
    endpoint.guard = ""
    await tested.decide(state)
    assert (tested.counts.decisions, tested.counts.guarded, tested.guard) == (3, 2, "")


@pytest.mark.parametrize("how", ["fallback", "swap"])
async def test_the_reason_of_a_guard_is_not_that_of_another_policys_decision(state, how):
    endpoint = FakeEndpoint(guard="job 7 is overdue")
    tested = decider(endpoint)
    await tested.decide(state)
    if how == "swap":
        await tested.use(FakeEndpoint(), state)
    else:
        endpoint.away = True
        await tested.decide(state)
    assert (tested.counts.guarded, tested.guard) == (1, "")


@pytest.mark.parametrize("how", ["fallback", "swap", "inside"])
async def test_a_state_outside_of_the_trained_range_is_noted_as_long_as_it_is(state, how):
    endpoint = FakeEndpoint(outside="1 of 1 jobs request 4 GPUs (trained: 1 to 2)")
    tested = decider(endpoint)
    decided = await tested.decide(state)
    assert decided.plan.outside == tested.outside == "1 of 1 jobs request 4 GPUs (trained: 1 to 2)"
    assert tested.counts.guarded == 0
    match how:
        case "swap":
            await tested.use(FakeEndpoint(), state)
        case "fallback":
            endpoint.away = True
            await tested.decide(state)
        case _:
            endpoint.outside = ""
            await tested.decide(state)
    assert tested.outside == ""


async def test_the_fallback_decides_when_it_is_away(state):
    tested = decider(FakeEndpoint(away=True))
    decided = await tested.decide(state)
    assert (decided.policy, decided.ordered_by) == (
        "fallback:fifo",
        "by time of submission, and lets no job pass the first",
    )
    assert "nobody listens" in decided.problem
    assert len(decided.plan.starts) == 1
    assert not tested.serving


async def test_a_bad_decision_counts_as_a_reject_and_the_fallback_decides(state):
    tested = decider(FakeEndpoint(placement=Placement((0,), (7,))))
    decided = await tested.decide(state)
    assert decided.policy == "fallback:fifo"
    assert "7 GPUs instead of 1" in decided.problem
    assert (tested.counts.rejects, tested.counts.fallbacks) == (1, 1)


async def test_a_decision_that_cannot_even_be_checked_is_that_servers_failure(state, monkeypatch):
    real = decider_module.make_plan

    def make_plan(state, decision, spec, binds):
        if spec.name == "fake":
            raise IndexError("oh")
        return real(state, decision, spec, binds)

    monkeypatch.setattr(decider_module, "make_plan", make_plan)
    tested = decider(FakeEndpoint())
    decided = await tested.decide(state)
    assert decided.policy == "fallback:fifo"
    assert "IndexError: oh" in decided.problem
    assert (tested.counts.rejects, tested.serving) == (1, False)
    # nor is it swapped in, or rehearsed with
    with pytest.raises(PolicyUnavailableError, match="IndexError: oh"):
        await tested.use(FakeEndpoint("unix:///new"), state)
    known = decider(FakeEndpoint())
    await known.refresh()
    assert await known.rehearse(state) is None


async def test_there_is_no_decision_when_the_fallbacks_cannot_be_checked(state, monkeypatch):
    def make_plan(state, decision, spec, binds):
        raise IndexError("oh")

    monkeypatch.setattr(decider_module, "make_plan", make_plan)
    tested = decider(FakeEndpoint(away=True))
    assert await tested.decide(state) is None
    assert "IndexError: oh" in tested.last_error
    assert tested.counts.undecided == 1


async def test_a_server_that_answers_again_decides_again(state):
    endpoint = FakeEndpoint(away=True)
    tested = decider(endpoint)
    await tested.decide(state)
    assert "nobody listens" in tested.last_error
    endpoint.away = False
    assert (await tested.decide(state)).policy == "fake"
    assert (tested.serving, tested.last_error) == (True, "")


async def test_each_other_problem_of_a_server_is_logged_once(state):
    endpoint = FakeEndpoint(away=True)
    tested = decider(endpoint)
    with capture_logs() as logs:
        await tested.decide(state)
        await tested.decide(state)
        endpoint.away, endpoint.placement = False, Placement((0,), (7,))
        await tested.decide(state)
    problems = [entry["problem"] for entry in logs if entry["event"] == "policy_failed"]
    assert len(problems) == 2
    assert "nobody listens" in problems[0]
    assert "rejected" in problems[1]


async def test_a_server_that_keeps_failing_is_left_alone_for_a_moment(state):
    clock, endpoint = VirtualClock(), FakeEndpoint(placement=Placement((0,), (7,)))
    tested = decider(endpoint, clock=clock)
    for _ in range(10):
        assert (await tested.decide(state)).policy == "fallback:fifo"
    assert endpoint.num_calls == 3
    await clock.advance(6.0)
    await tested.decide(state)
    assert endpoint.num_calls == 4


async def test_there_is_no_decision_when_the_fallback_fails_too(state):
    tested = decider(FakeEndpoint(away=True), BrokenPolicy())
    assert await tested.decide(state) is None
    assert "ZeroDivisionError" in tested.last_error
    assert tested.counts.undecided == 1


async def test_an_error_that_lasts_is_reported_once(state):
    tested = decider(FakeEndpoint(away=True), BrokenPolicy())
    for _ in range(10):
        assert await tested.decide(state) is None
    assert tested.last_error.count("nobody listens") == 1
    assert tested.last_error.count("ZeroDivisionError") == 1


async def test_a_fit_policy_is_swapped_in_and_the_old_one_let_go(state):
    old, new = FakeEndpoint(), FakeEndpoint("unix:///new")
    tested = decider(old)
    assert (await tested.use(new, state)).name == "fake"
    assert (tested.address, old.closed) == ("unix:///new", True)


@pytest.mark.parametrize(
    ("unfit", "complaint"),
    [
        (FakeEndpoint(away=True), "nobody listens"),
        (FakeEndpoint(sick=True), "does not report SERVING"),
        (FakeEndpoint(placement=Placement((0,), (7,))), "its dry-run decision was rejected"),
    ],
)
async def test_an_unfit_policy_is_refused_and_the_old_one_stays(state, unfit, complaint):
    old = FakeEndpoint("unix:///old")
    tested = decider(old)
    with pytest.raises(PolicyUnavailableError, match=complaint):
        await tested.use(unfit, state)
    assert (tested.address, old.closed, unfit.closed) == ("unix:///old", False, True)
    assert (await tested.decide(state)).policy == "fake"


async def test_learning_that_fails_disturbs_no_decision():
    await decider(FakeEndpoint(away=True)).learn([])
    await asyncio.sleep(0)


async def test_a_decision_on_an_empty_cluster_is_a_plan():
    empty = Observer().observe(snapshot(job("1", request=request(gpus_per_node=8))), Ledger(), frozenset({"dl"})).state
    assert (await decider(FakeEndpoint(away=True)).decide(empty)).plan.starts


@pytest.mark.parametrize(("took_s", "rehearsed"), [(0.05, True), (0.2, False)])
async def test_a_slow_server_gets_no_rehearsals(state, took_s, rehearsed):
    clock = VirtualClock(1000.0)

    class Slow(FakeEndpoint):
        async def decide(self, state, deadline_s):
            await clock.advance(took_s)
            return await super().decide(state, deadline_s)

    endpoint = Slow()
    decider = Decider(endpoint, load_policy("fifo"), 0.5, clock)
    await decider.refresh()
    await decider.decide(state)
    assert (await decider.rehearse(state) is not None) is rehearsed
    assert endpoint.num_calls == 1 + rehearsed
    # without waiting jobs, no decision shows that it is faster again
    took_s = 0.0
    await clock.advance(61)
    assert await decider.rehearse(state) is not None


@dataclass
class FirstInLine(FakeEndpoint):
    """A server of a policy that considers one waiting job; it notes the jobs that it was sent."""

    sent: list = field(default_factory=list)
    starts_unsent: bool = False

    async def describe(self, deadline_s):
        return PolicySpec(name="first", source="tests", considers=1)

    async def decide(self, state, deadline_s):
        self.sent.append(state.jobs.ids)
        row = len(state.jobs) - (not self.starts_unsent)
        return Decision({row: self.placement}, {row: "it is last"}, queue=tuple(state.pending.tolist()))


def long_queue(most=60):
    jobs = [job(str(number), submit=999_000 + number) for number in range(1, most + 1)]
    return Observer().observe(snapshot(*jobs), Ledger(), frozenset({"dl"})).state


async def test_a_policy_gets_only_the_jobs_that_it_considers():
    state, endpoint = long_queue(), FirstInLine()
    free = int(state.nodes.gpus.sum())
    decided = await decider(endpoint).decide(state)
    assert endpoint.sent == [state.jobs.ids[: free + 1]]
    (start,) = decided.plan.starts
    assert (start.row, start.reason, decided.plan.considered) == (free, "it is last", free + 1)
    assert decided.plan.queue == (*range(free), *range(free + 1, 60)), "jobs that were not sent stay in the queue"


async def test_a_queue_within_what_a_policy_considers_is_sent_whole():
    state, endpoint = long_queue(3), FirstInLine()
    decided = await decider(endpoint).decide(state)
    assert endpoint.sent == [state.jobs.ids]
    assert decided.plan.considered == 0


async def test_a_decision_on_a_job_that_was_not_sent_is_rejected():
    endpoint = FirstInLine(starts_unsent=True)
    decided = await decider(endpoint).decide(long_queue())
    assert (decided.policy, decided.plan.considered) == ("fallback:fifo", 0)


@dataclass
class TimedEndpoint(FakeEndpoint):
    """A server that takes this long for each kind of answer, or until its deadline."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    describes_s: float = 0.45
    decides_s: float = 9.0
    described: int = 0

    async def describe(self, deadline_s):
        self.described += 1
        await self._take(self.describes_s, deadline_s)
        return await super().describe(deadline_s)

    async def decide(self, state, deadline_s):
        await self._take(self.decides_s, deadline_s)
        return await super().decide(state, deadline_s)

    async def _take(self, seconds, deadline_s):
        assert deadline_s > 0
        await self.clock.advance(min(seconds, deadline_s))
        if seconds > deadline_s:
            raise PolicyServerError(PolicyFault.DEADLINE, self.address, "no answer")


@pytest.mark.parametrize("describes_s", [0.1, 0.45, 0.5, 9.0])
async def test_all_calls_for_a_decision_have_one_deadline_together(state, describes_s):
    endpoint = TimedEndpoint(describes_s=describes_s)
    tested = decider(endpoint, clock=endpoint.clock)
    for _ in range(5):  # the first one asks for a description because there is none, later ones after failures
        begun_s = endpoint.clock.monotonic()
        assert (await tested.decide(state)).policy == "fallback:fifo"
        assert endpoint.clock.monotonic() - begun_s <= 0.5 + 1e-6


async def test_a_server_whose_answers_take_longer_than_the_deadline_together_decides_again(state):
    endpoint = TimedEndpoint(describes_s=0.3, decides_s=0.1)
    tested = decider(endpoint, clock=endpoint.clock)
    assert (await tested.decide(state)).policy == "fake"
    # given a server that has become slow, and is described again after each failure
    endpoint.decides_s = 0.6
    assert (await tested.decide(state)).policy == "fallback:fifo"
    endpoint.decides_s = 0.4
    assert (await tested.decide(state)).policy == "fallback:fifo"
    # then its next decision is made by the description that it has just given
    assert (await tested.decide(state)).policy == "fake"
    assert endpoint.described == 2
