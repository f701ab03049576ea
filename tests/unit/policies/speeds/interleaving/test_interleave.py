"""Shifts of jobs on several links: they keep what each link needs, and loops are found."""

from __future__ import annotations

import random

import numpy as np
import pytest

from policies.speeds.interleaving.affinity import time_shifts
from policies.speeds.interleaving.circle import Pattern
from policies.speeds.interleaving.interleave import Interleaving, Link, contested, interleave

HALF = Pattern(1.0, 0.5)


def link(gbyte_s: float, *jobs: int, rate: float = 10.0) -> Link:
    return Link(gbyte_s, tuple((job, rate) for job in jobs))


def random_tree(rng: random.Random) -> tuple[list[list[int]], int]:
    """The jobs of some links, and the number of jobs; no loop, and all connected."""
    links, jobs = [], 1
    for _ in range(rng.randint(1, 5)):
        more = rng.randint(1, 2)
        links.append([rng.randrange(jobs), *range(jobs, jobs + more)])
        jobs += more
    return links, jobs


@pytest.mark.parametrize("seed", range(40))
def test_shifts_differ_from_those_of_each_link_by_one_delay(seed: int) -> None:
    """The theorem: some delay x has t(j) = t(j, l) + x modulo j's period, for all jobs j of the link l."""
    rng = random.Random(seed)
    links, jobs = random_tree(rng)
    periods = {job: float(rng.choice((1, 2, 3, 4, 6, 12))) for job in range(jobs)}
    weights = [{job: rng.randrange(12 * 4) / 4 % periods[job] for job in each} for each in links]
    shifts = time_shifts(weights, periods)
    assert shifts is not None and shifts[0] == 0.0
    assert all(0 <= shifts[job] < periods[job] for job in range(jobs))
    for each in weights:
        delays = [quarter / 4 for quarter in range(12 * 4)]
        assert any(all((each[job] + x - shifts[job]) % periods[job] == 0 for job in each) for x in delays)


def test_a_graph_with_a_loop_has_no_shifts() -> None:
    periods = dict.fromkeys(range(3), 1.0)
    pairs = [{0: 0.0, 1: 0.5}, {1: 0.0, 2: 0.5}]
    assert time_shifts(pairs, periods) == {0: 0.0, 1: 0.5, 2: 0.0}
    assert time_shifts([*pairs, {0: 0.0, 2: 0.5}], periods) is None
    assert time_shifts([{0: 0.0, 1: 0.5}, {0: 0.0, 1: 0.5}], periods) is None


def test_parts_that_are_not_connected_each_begin_at_0() -> None:
    assert time_shifts([{0: 0.0, 2: 0.5}, {1: 0.0, 3: 0.75}], dict.fromkeys(range(4), 1.0)) == {
        0: 0.0,
        2: 0.5,
        1: 0.0,
        3: 0.75,
    }


def excess_share(order: Interleaving, patterns: list[Pattern], each: Link, moments: int = 4000) -> float:
    """Mean excess over the link's capacity while the jobs keep their shifts, moment by moment, and as a share of it."""
    times_s = (np.arange(moments) + 0.5) * 12.0 * max(order.periods_s) / moments
    total = np.zeros(moments)
    for job, rate in each.sends:
        shift_s = order.shifts_s[job]
        assert shift_s is not None
        total += rate * ((times_s - shift_s) % order.periods_s[job] < patterns[job].send_s)
    return float(np.maximum(total - each.gbyte_s, 0.0).mean()) / each.gbyte_s


@pytest.mark.parametrize("seed", range(25))
def test_jobs_that_keep_their_shifts_exceed_no_link_by_more_than_its_score_says(seed: int) -> None:
    rng = random.Random(seed)
    links, jobs = random_tree(rng)
    patterns = [
        Pattern(period, period * rng.uniform(0.1, 0.5)) for period in (rng.choice((1.0, 2.0, 3.0)) for _ in range(jobs))
    ]
    wires = [link(10.0, *each, rate=rng.choice((6.0, 10.0))) for each in links]
    order = interleave(tuple(patterns), tuple(wires))
    assert order is not None and len(order.scores) == len(wires)
    for wire, score in zip(wires, order.scores, strict=True):
        assert excess_share(order, patterns, wire) <= 1.0 - score + 0.005


def test_two_jobs_that_send_half_of_their_time_are_half_a_step_apart() -> None:
    order = interleave((HALF, HALF), (link(10.0, 0, 1),))
    assert order == Interleaving((1.0,), (0.0, 0.5), (1.0, 1.0))
    assert order.mean == order.least == 1.0 and order.fits


def test_scores_of_several_links_have_a_mean_and_a_least() -> None:
    order = interleave((HALF, HALF, Pattern(1.0, 1.0)), (link(10.0, 0, 1), link(10.0, 1, 2)))
    assert order is not None
    assert list(order.scores) == pytest.approx([1.0, 0.5])
    assert [order.mean, order.least] == pytest.approx([0.75, 0.5])
    assert not order.fits


def test_links_that_cannot_be_full_need_no_shifts_and_no_common_circle() -> None:
    strange = Pattern(0.0123, 0.01)
    assert interleave((HALF, strange), (link(20.0, 0, 1), link(5.0, 0))) == Interleaving(
        (), (None, None), (1.0, 0.0123)
    )
    assert interleave((HALF, strange), (link(19.0, 0, 1),)) is None


def test_a_job_that_hardly_sends_needs_no_place_on_the_circle() -> None:
    rare = Pattern(0.0123, 0.0005)
    order = interleave((HALF, rare, HALF), (link(10.0, 0, 1, 2),))
    assert order == Interleaving((1.0,), (0.0, None, 0.5), (1.0, 0.0123, 1.0))


def test_jobs_on_no_link_that_could_be_full_have_no_shift_and_need_not_fit_the_circle() -> None:
    rare, strange = Pattern(0.0123, 0.0005), Pattern(0.0123, 0.01)
    order = interleave((HALF, rare, HALF, strange), (link(10.0, 0, 2), link(10.0, 1, 3)))
    assert order == Interleaving((1.0,), (0.0, None, 0.5, None), (1.0, 0.0123, 1.0, 0.0123))


def test_both_uplinks_of_the_same_racks_are_no_loop() -> None:
    same = link(10.0, 0, 1)
    assert contested((same, same, link(12.0, 0, 1), link(12.0, 1))) == [same]
    wider = link(12.0, 0, 1)
    assert contested((wider, link(10.0, 0, 1, 2))) == [link(10.0, 0, 1, 2)]
    assert contested((wider, link(15.0, 0, 1, 2))) == [wider, link(15.0, 0, 1, 2)]
    faster = Link(10.0, ((0, 20.0), (1, 10.0), (2, 1.0)))
    assert contested((faster, link(10.0, 0, 1))) == [faster]
    assert contested((link(10.0, 0, 1, rate=30.0), faster)) == [link(10.0, 0, 1, rate=30.0), faster]


def test_a_loop_that_remains_gives_no_interleaving() -> None:
    assert interleave((HALF,) * 3, (link(10.0, 0, 1), link(10.0, 1, 2), link(10.0, 0, 2))) is None
