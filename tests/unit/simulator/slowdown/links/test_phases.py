"""Jobs that send in turns: steps in closed form, against a course in small ticks, and what shifts gain."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulator.cluster.topology import rack_tree
from simulator.slowdown.api import Resident
from simulator.slowdown.links import phases
from simulator.slowdown.links.max_min import MaxMin
from simulator.slowdown.links.phases import Sender, step_seconds
from simulator.slowdown.profiles.model_profiles import ModelProfile
from simulator.slowdown.profiles.papers import paper_profiles

KNOWN = {
    "half": ModelProfile(compute_s=1.0, bytes=12.5e9),
    "third": ModelProfile(compute_s=2.0, bytes=12.5e9),
    "two thirds": ModelProfile(compute_s=0.5, bytes=12.5e9),
}
PROFILES = replace(paper_profiles(), models=KNOWN, default="half")
NODES = rack_tree([8] * 3, [1] * 3, [0] * 3)
"""One NIC of 12.5 GB/s on each node: a job on two nodes sends its 12.5 GB in one second."""


def sender(compute_s: float, send_s: float, begin_s: float, overlap: float = 0.0, pace_s: float = 0.0) -> Sender:
    profile = ModelProfile(compute_s, 1.0, overlap=overlap)
    return Sender(send_s, 10.0, lambda took_s: profile.step_s(took_s), begin_s, pace_s)


def on_one_link(senders: list[Sender]) -> list[float]:
    found = step_seconds(dict(enumerate(senders)), {job: {0: 1.0} for job in range(len(senders))}, {0: 10.0})
    return [found[job] for job in range(len(senders))]


@pytest.mark.parametrize("apart", [0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.8, 1.0])
def test_the_step_of_two_equal_jobs_follows_from_how_far_they_are_apart(apart: float) -> None:
    compute_s, send_s = 1.0, 0.5
    met = max(0.0, send_s - min(apart, compute_s + send_s - apart))
    steps = on_one_link([sender(compute_s, send_s, 0.0), sender(compute_s, send_s, apart)])
    assert steps == pytest.approx([compute_s + send_s + met] * 2)


def in_ticks(senders: list[Sender], tick_s: float, until_s: float) -> list[float]:
    """The mean step of each job on a link of rate 10, as it is after every tick: equal shares of what is asked for."""
    left = [0.0] * len(senders)
    next_s = [each.begin_s for each in senders]
    begins: list[list[float]] = [[] for _ in senders]
    now_s = 0.0
    while now_s < until_s:
        for job, each in enumerate(senders):
            if left[job] <= 0.0 and now_s >= next_s[job]:
                left[job] += each.send_s
                begins[job].append(now_s)
        sending = [job for job in range(len(senders)) if left[job] > 0.0]
        for job in sending:
            left[job] -= tick_s / len(sending)
            if left[job] <= 0.0:
                took_s = now_s + tick_s - begins[job][-1]
                next_s[job] = max(
                    begins[job][-1] + took_s + senders[job].step_s(took_s) - took_s,
                    begins[job][-1] + senders[job].pace_s,
                )
        now_s += tick_s
    return [(its[-1] - its[0]) / (len(its) - 1) for its in begins]


@pytest.mark.parametrize("seed", range(8))
def test_events_give_what_small_ticks_give(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [
        sender(
            rng.uniform(0.3, 1.0),
            rng.uniform(0.2, 0.8),
            rng.uniform(0, 1),
            rng.choice((0.0, 0.5)),
            rng.choice((0.0, 1.5)),
        )
        for _ in range(rng.randint(2, 3))
    ]
    steps = on_one_link(jobs)
    assert steps == pytest.approx(in_ticks(jobs, 0.002, 40.0), rel=0.1)
    assert all(step >= each.step_s(each.send_s) - 1e-9 for step, each in zip(steps, jobs, strict=True))


def test_steps_of_the_slowest_job_are_counted_too() -> None:
    quick, slow = on_one_link([sender(0.01, 0.01, 0.0), sender(3.0, 1.0, 0.5)])
    # The quick job sends for 0.02 of 0.03 s while the slow one does, which so has two thirds of the link: 1.5 s for its send.
    assert slow == pytest.approx(3.0 + 1.5, rel=0.01)
    assert 0.02 < quick < 0.04


@pytest.mark.parametrize("begin_s", [0.0, 0.5, 30.0])
def test_a_job_that_is_too_slow_for_the_course_is_slowed_down_by_its_share_so_far(
    begin_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of 4.5 s beside eleven of 0.03 s, of which each has made hundreds of steps before it ends its first."""
    jobs = [sender(3.0, 1.5, begin_s), *(sender(0.02, 0.01, 0.003 * place) for place in range(11))]
    slow, *quick = on_one_link(jobs)
    monkeypatch.setattr(phases, "_MOST_SENDS", 8_000)
    longer, *others = on_one_link(jobs)
    assert slow == pytest.approx(longer, rel=0.1)
    assert slow > 3.0 + 5 * 1.5
    assert quick == pytest.approx(others, rel=0.1)


def test_the_jobs_of_a_large_component_all_make_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred jobs fill a link: each has a hundredth of it, although there are no more than two sends for each in 200."""
    monkeypatch.setattr(phases, "_MOST_SENDS", 200)
    steps = on_one_link([sender(1.0, 1.0, place / 50) for place in range(100)])
    assert steps == pytest.approx([100.0] * 100, rel=0.05)


def test_a_job_without_anything_to_send_does_not_stop_the_others() -> None:
    assert on_one_link([sender(1.0, 0.0, 0.0), sender(1.0, 0.5, 0.3)]) == pytest.approx([1.0, 1.5])


def factors(sharing: str, *jobs: tuple[int, str, tuple[int, ...]]) -> list[float]:
    model = MaxMin(NODES, PROFILES, reference="alone", sharing=sharing)
    for job, name, nodes in jobs:
        model.enter(Resident(job, name, -1, 8, nodes, (8 // len(nodes),) * len(nodes)))
    return [model.factor(job) for job, _, _ in jobs]


def test_shifts_let_jobs_that_send_half_of_their_time_run_as_if_alone() -> None:
    pair = (0, "half", (0, 1)), (1, "half", (0, 1))
    assert factors("always", *pair) == pytest.approx([2 / 3] * 2)
    assert factors("phases", *pair) == pytest.approx([2 / (3 - 2 * 0.3819660)] * 2)
    assert factors("shifts", *pair) == pytest.approx([1.0] * 2)


def test_shifts_help_little_where_jobs_send_for_most_of_their_time() -> None:
    pair = (0, "two thirds", (0, 1)), (1, "two thirds", (0, 1))
    shifted = factors("shifts", *pair)
    assert shifted == pytest.approx([1.5 / 2.0] * 2)  # the link is full all the time: 2 s of sending in each step
    assert shifted[0] >= factors("phases", *pair)[0]


def test_each_link_of_a_chain_is_shared_in_turns() -> None:
    chain = (0, "half", (0, 1)), (1, "half", (1, 2)), (2, "third", (2,))
    assert factors("shifts", *chain) == pytest.approx([1.0] * 3)
    ring = (0, "half", (0, 1)), (1, "half", (1, 2)), (2, "half", (0, 2))
    assert factors("shifts", *ring) == factors("phases", *ring)  # a loop: there are no shifts


def test_jobs_without_a_common_circle_are_not_shifted() -> None:
    strange = replace(PROFILES, models={**KNOWN, "quick": ModelProfile(compute_s=0.011, bytes=0.2e9)})
    for sharing in ("phases", "shifts"):
        model = MaxMin(NODES, strange, reference="alone", sharing=sharing)
        for job, name in enumerate(("half", "quick")):
            model.enter(Resident(job, name, -1, 8, (0, 1), (4, 4)))
        assert model.factor(0) < 0.9


def test_jobs_that_hardly_send_are_not_shifted_and_do_not_begin_together() -> None:
    """Two jobs that send for 4 % of their time, alone on a link or beside one that sends for half of it."""
    known = replace(PROFILES, models={**KNOWN, "little": ModelProfile(compute_s=2.4, bytes=1.25e9)})
    for others in (0, 1):
        found = {}
        for sharing in ("phases", "shifts"):
            model = MaxMin(NODES, known, reference="alone", sharing=sharing)
            for job, name in enumerate(["little", "little", "half"][: 2 + others]):
                model.enter(Resident(job, name, -1, 8, (0, 1), (4, 4)))
            found[sharing] = [model.factor(job) for job in range(2 + others)]
        assert found["shifts"] == pytest.approx(found["phases"])


def test_jobs_of_nearly_equal_steps_are_paced_so_that_they_keep_out_of_step() -> None:
    """Steps of 2 and 2.04 s: one job waits 0.04 s in each of its steps, and neither meets the other."""
    models = {"half": KNOWN["half"], "longer": replace(KNOWN["half"], compute_s=1.04)}
    found = {}
    for sharing in ("phases", "shifts"):
        model = MaxMin(NODES, replace(PROFILES, models=models), reference="alone", sharing=sharing)
        for job, name in enumerate(models):
            model.enter(Resident(job, name, -1, 8, (0, 1), (4, 4)))
        found[sharing] = [model.factor(0), model.factor(1)]
    assert found["shifts"] == pytest.approx([2 / 2.04, 1.0])
    assert min(found["phases"]) < 2 / 2.04 - 0.01
