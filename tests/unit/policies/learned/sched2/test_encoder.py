"""The encoder shows and does what the environment shows and does, and handles cases that only live clusters have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import EncoderError
from policies.learned.sched2.encoder import AgentView, Encoder, Encoding
from policies.learned.sched2.state.window import WIDEST, chosen
from policies.model import ClusterState, Placement, ProfileTable, Split
from simulator.cluster.cluster import cluster_of
from simulator.engine.settings import Settings
from simulator.papers.sched2.env import Sched2Env
from simulator.traces.generators.sched2 import Sched2
from tests.unit.policies.learned.parity import follow
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check_starts
from tests.unit.simulator.envs.worlds import trace_of
from tests.unit.simulator.papers.sched2.test_env import FAILURES, RACKS, random_agent

BUSY = Sched2(jobs=80, mean_gap_s=400.0, cluster_gpus=32)
DRAINED = Settings(changes=tuple(change for change in FAILURES if change.change != "down" and change.node == 3))
WORLDS: list[dict[str, Any]] = [
    {"traces": Sched2(jobs=150, mean_gap_s=100.0)},
    {"traces": BUSY, "cluster": "4x8", "candidates": 4},
    {"traces": BUSY, "cluster": "4x8", "window": WIDEST, "candidates": 6},
    {"traces": BUSY, "cluster": cluster_of(RACKS)},
    {"traces": BUSY, "cluster": cluster_of(RACKS), "window": WIDEST},
    {"traces": BUSY, "cluster": "4x8", "settings": DRAINED},
]


def encoder_of(env: Sched2Env) -> Encoder:
    options, columns = env.options, env.columns
    return Encoder(
        Encoding(
            num_nodes=columns.nodes,
            gpus_per_node=columns.gpus,
            candidates=options.candidates,
            window=options.window,
        )
    )


def check_parity(env: Sched2Env, view: AgentView, seen: Any) -> None:
    rows = [view.state.jobs.ids[row] for row in view.candidates]
    assert rows == [env.trace.job_ids[job.index] for job in env.candidates]
    assert view.mask().tolist() == env.action_masks().tolist()
    assert view.array().dtype == seen.dtype
    np.testing.assert_allclose(view.array(), seen, rtol=1e-5, atol=1e-6)


def episode(env: Sched2Env, **reset: Any) -> int:
    """Play an episode of random actions, and return how many jobs were started."""
    encoder = encoder_of(env)
    assert encoder.encoding.columns == env.columns
    return follow(env, encoder, random_agent(7), check_parity, **reset)


@pytest.mark.parametrize("options", WORLDS)
def test_the_encoder_shows_and_does_what_the_environment_does(options: dict[str, Any]) -> None:
    env = Sched2Env(**options)
    assert episode(env, seed=3) >= 80


def test_the_window_shows_the_chosen_jobs() -> None:
    gpus, ideal = np.array([2, 1, 2, 4, 1, 2]), np.array([5.0, 9.0, 4.0, 8.0, 7.0, 3.0])
    assert chosen("first", 4, gpus, ideal).tolist() == [0, 1, 2, 3]
    assert chosen("widest", 4, gpus, ideal).tolist() == [4, 5, 3, 1]
    assert chosen("widest", 9, gpus, ideal).tolist() == [4, 5, 3, 1, 2, 0]
    assert chosen("widest", 9, gpus[:0], ideal[:0]).tolist() == []


# What only live clusters have


def look(state: ClusterState, **encoding: Any) -> AgentView:
    widest = max(1, int(state.nodes.gpus.max()))
    return Encoder(Encoding(num_nodes=len(state.nodes), gpus_per_node=widest, **encoding)).observe(state)


@settings(max_examples=60, deadline=None)
@given(state=states(), window=st.sampled_from(["first", "widest"]), data=st.data())
def test_no_action_places_a_job_where_it_may_not_be(state: ClusterState, window: str, data: st.DataObject) -> None:
    if state.nodes.gpus.max() == 0:
        return
    view = look(state, window=window, candidates=4)
    started: dict[int, Placement] = {}
    for _ in range(8):
        assert np.isfinite(view.array()).all()
        action = int(data.draw(st.sampled_from(np.flatnonzero(view.mask()).tolist())))
        found = view.start(action)
        assert (found is None) == (action == 0)
        if found is None:
            break
        started[found[0]] = found[1]
    check_starts(state, started)


def test_foreign_gpus_and_nodes_that_take_no_job_are_absent() -> None:
    nodes = [Node(gpus=3, foreign_gpus=1), Node(gpus=3, available=False), Node(gpus=3), Node(gpus=2)]
    jobs = [Job(gpus=1, exclusive=True, occupied={2: 1}, estimate_s=7200, service_s=3600), Job(gpus=2)]
    gpus, _, _ = look(cluster(nodes, jobs)).encoding.columns.split(look(cluster(nodes, jobs)).array())
    assert gpus.tolist() == [[-1, 0, 0], [-1, -1, -1], [1, 1, 1], [-1, 0, 0]]


def test_more_occupied_gpus_than_a_node_has_are_shown_as_all_of_its_gpus() -> None:
    state = cluster(
        [Node(gpus=2)], [Job(gpus=2, occupied={0: 2}, estimate_s=3600), Job(gpus=1, occupied={0: 1}, estimate_s=60)]
    )
    gpus, _, _ = look(state).encoding.columns.split(look(state).array())
    assert gpus.tolist() == [[1, 1]]


def test_a_job_without_an_estimate_has_the_mean_time_and_one_beyond_its_estimate_is_about_to_end() -> None:
    jobs = [Job(gpus=1, occupied={0: 1}, estimate_s=60, service_s=100), Job(gpus=1), Job(gpus=1, estimate_s=1800)]
    view = look(cluster([Node(gpus=2)], jobs), usual_h=2.5)
    gpus, shown, _ = view.encoding.columns.split(view.array())
    assert gpus.tolist() == [[0, 0]]
    assert shown[:2, 0].tolist() == [2.5, 0.5]


def test_jobs_that_can_never_be_placed_are_no_candidates_and_more_jobs_than_slots_are_the_rest() -> None:
    jobs = [Job(gpus=9), Job(gpus=1), Job(gpus=2), Job(gpus=1), Job(gpus=2)]
    view = look(cluster([Node(gpus=2), Node(gpus=2)], jobs), candidates=2)
    assert list(view.candidates) == [1, 2]
    _, _, rest = view.encoding.columns.split(view.array())
    assert rest[:2].tolist() == pytest.approx([2 / 2, 1.5 / 2])
    assert view.start(1) == (1, Placement((0,), (1,)))
    assert list(view.candidates) == [2, 3]


def test_waiting_is_masked_while_nothing_runs_and_a_job_fits() -> None:
    view = look(cluster([Node(gpus=2)], [Job(gpus=1), Job(gpus=2)]))
    assert view.mask()[:4].tolist() == [False, True, True, False]
    view.start(1)
    assert view.mask()[:3].tolist() == [True, False, False]
    assert look(cluster([Node(gpus=2, available=False)], [Job(gpus=1)])).mask().tolist()[:2] == [True, False]


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.5, 0.0, 7.0])
def test_an_unmeasured_tier_has_the_speed_of_the_tier_before_it(value: float) -> None:
    env = Sched2Env(traces=[trace_of((0, 4, 3600), models=["vgg16"])], cluster=cluster_of(RACKS))
    env.reset()
    state = env.simulation.state()
    assert state.profiles is not None

    def shown(tiers: list[float]) -> list[float]:
        assert state.profiles is not None
        profiles: ProfileTable = replace(state.profiles, locality=np.array([tiers]))
        view = look(replace(state, profiles=profiles))
        times: list[float] = view.encoding.columns.split(view.array())[1][0, :4].tolist()
        return times

    assert shown([1.0, 1.0, 0.5, 0.25]) == [1, 2, 2, 4]
    assert shown([1.0, 1.0, 0.5, value]) == [1, 2, 2, 2]
    assert shown([1.0, value, value, value]) == [1, 1, 1, 1]
    assert [look(replace(state, profiles=None)).array()[5 * 8 + place] for place in range(4)] == [1, 1, 1, 1]


def test_an_unknown_cluster_is_refused() -> None:
    encoder = Encoder(Encoding(num_nodes=2, gpus_per_node=8))
    for nodes in ([Node()], [Node(gpus=4)] * 2, [Node()] * 3, [Node(gpus=9)] * 2):
        with pytest.raises(EncoderError, match="trained for 2 nodes, the widest of 8 GPUs, and the cluster has"):
            encoder.observe(cluster(nodes, []))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"candidates": 0}, "candidates is 0; give at least 1"),
        ({"window": "last"}, "window is 'last'; give first or widest"),
        ({"usual_h": float("nan")}, "usual_h is nan; give hours"),
    ],
)
def test_impossible_encodings_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(EncoderError, match=says):
        Encoding(**options)


def test_a_job_with_a_fixed_division_is_placed_by_it() -> None:
    jobs = [Job(gpus=4, split=Split.FIXED, min_nodes=2)]
    view = look(cluster([Node(gpus=4), Node(gpus=2)], jobs))
    assert view.start(1) == (0, Placement((0, 1), (2, 2)))
