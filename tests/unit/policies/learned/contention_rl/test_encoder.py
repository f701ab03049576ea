"""The encoder shows and does what the environment shows and does, and handles cases that only live clusters have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import EncoderError
from policies.learned.contention_rl.encoder import AgentView, Encoder, Encoding
from policies.learned.contention_rl.features import scalar
from policies.model import ClusterState, Placement, ProfileTable, Split
from simulator.engine.settings import NodeChange, Settings
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.papers.contention_rl.features import JobFeatures
from simulator.slowdown.profiles.model_profiles import ModelProfile
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.contention_rl import ContentionRL
from tests.unit.policies.learned.parity import follow
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check_starts
from tests.unit.simulator.envs.worlds import random_agent, trace_of

SIZES = (1, 2, 3, 5, 8, 11, 13, 17, 24, 31)
CHANGES = (
    NodeChange(2000, 1, "down"),
    NodeChange(5000, 2, "drain"),
    NodeChange(9000, 1, "up"),
    NodeChange(9000, 2, "up"),
)
WORLDS: list[dict[str, Any]] = [
    {"traces": ContentionRL(jobs=24)},
    {"traces": ContentionRL(jobs=24, demands=SIZES), "cells": "features", "slowdown": ("link-sharing",)},
    {"traces": ContentionRL(jobs=24, demands=SIZES, arrivals="poisson", load=0.9), "decide": "events"},
    {"traces": ContentionRL(jobs=24, demands=SIZES), "split": "packed", "candidates": 5},
    {"traces": ContentionRL(jobs=24, demands=(2, 4, 8)), "starts": "fewest", "cells": "features", "skip_forced": True},
    {"traces": ContentionRL(jobs=24, demands=SIZES), "nodes": "rules", "cells": "features"},
    {"traces": ContentionRL(jobs=24, demands=SIZES), "nodes": "rules", "split": "packed"},
    {"traces": ContentionRL(jobs=24), "preempt_below": 0.7, "slowdown": ("max-min",), "candidates": 2},
    {"traces": ContentionRL(jobs=24, demands=SIZES), "settings": Settings(changes=CHANGES)},
    {"traces": ContentionRL(jobs=24, demands=SIZES), "nodes": "rules", "settings": Settings(changes=CHANGES)},
    {"traces": ContentionRL(jobs=24, cluster_gpus=12, demands=(1, 2, 3, 6)), "cluster": "6x2", "split": "packed"},
]


def encoder_of(env: ContentionEnv) -> Encoder:
    options, gpus = env.options, env.cluster.gpus
    usual = JobFeatures(options.profiles, env.cluster.topology).of("")
    return Encoder(
        Encoding(
            num_nodes=len(gpus),
            gpus_per_node=max(gpus),
            candidates=options.candidates,
            nodes=options.nodes,
            split=options.split,
            starts=options.starts,
            cells=options.cells,
            usual=usual,
        )
    )


def check_parity(env: ContentionEnv, view: AgentView, seen: Any) -> None:
    rows = [view.state.jobs.ids[candidate.row] for candidate in view.candidates]
    assert rows == [env.trace.job_ids[job.index] for job in env.candidates]
    assert view.mask().tolist() == env.action_masks().tolist()
    assert np.array_equal(view.array, seen)


def episode(env: ContentionEnv, **reset: Any) -> int:
    """Play an episode of random actions, and return how many jobs were started."""
    encoder = encoder_of(env)
    assert encoder.encoding.shape == env.observation_space.shape
    assert encoder.encoding.actions == env.action_space.n
    return follow(env, encoder, random_agent(7), check_parity, **reset)


@pytest.mark.parametrize("options", WORLDS)
def test_the_encoder_shows_and_does_what_the_environment_does(options: dict[str, Any]) -> None:
    env = ContentionEnv(**options)
    assert episode(env, seed=3) >= 24


def test_nodes_of_different_sizes_are_encoded_as_in_the_environment(tmp_path: Any) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text("[[nodes]]\ncount = 1\ngpus = 4\n[[nodes]]\ncount = 2\ngpus = 2\n")
    jobs = [(0, gpus, 600 + 100 * gpus) for gpus in (4, 2, 1, 4, 2, 2, 1)]
    assert episode(ContentionEnv(traces=[trace_of(*jobs)], cluster=str(path))) == 7


def test_a_new_model_is_shown_by_its_profile_and_one_without_a_name_as_the_median() -> None:
    profiles = paper_profiles("contention-rl").with_models(
        {"NewNet": ModelProfile(compute_s=0.1, bytes=2e9, overlap=0.5)}
    )
    trace = trace_of(*[(0, 4, 600)] * 4, models=["NewNet", "", "no such model", "MoE"])
    episode(ContentionEnv(traces=[trace], profiles=profiles, cells="features"))


def test_what_a_state_shows_does_not_depend_on_earlier_jobs() -> None:
    jobs = (0, 2, 100), (0, 3, 900), (0, 2, 900), (0, 8, 900)
    trace = trace_of(*jobs, models=["FSDP", "MoE", "DLRM", "GraphSage"])
    env = ContentionEnv(traces=[trace], cluster="1x8", slowdown=())
    env.reset()
    of = JobFeatures(env.options.profiles, env.cluster.topology)
    fsdp, moe, dlrm = (scalar(of.of(model)) for model in trace.model[:3])
    # FSDP starts, and then DLRM as the next of two GPUs; MoE, which was submitted between them, is shown between them.
    env.step(np.int64(1))
    env.step(np.int64(2))
    env.step(np.int64(1))
    assert env._grid.array[0, :8, 0].tolist() == pytest.approx([fsdp] * 2 + [moe] * 3 + [dlrm] * 2 + [0.0])
    env.step(np.int64(0))
    assert env._grid.array[0, :8, 0].tolist() == pytest.approx([moe] * 3 + [dlrm] * 2 + [0.0] * 3)


# What only live clusters have


def look(state: ClusterState, **encoding: Any) -> AgentView:
    shape = {"num_nodes": len(state.nodes), "gpus_per_node": max(1, int(state.nodes.gpus.max()))}
    return Encoder(Encoding(**shape, **encoding)).observe(state)


@settings(max_examples=40, deadline=None)
@given(
    state=states(), nodes=st.sampled_from(["lists", "rules"]), split=st.sampled_from(["even", "packed"]), data=st.data()
)
def test_no_action_places_a_job_where_it_may_not_be(
    state: ClusterState, nodes: str, split: str, data: st.DataObject
) -> None:
    if state.nodes.gpus.max() == 0:
        return
    view = look(state, nodes=nodes, split=split)
    started: dict[int, Placement] = {}
    for _ in range(8):
        possible = np.flatnonzero(view.mask())
        action = int(data.draw(st.sampled_from(possible.tolist())))
        found = view.start(action)
        assert (found is None) == (action == 0)
        if found is None:
            break
        started[found[0]] = found[1]
    check_starts(state, started)


def test_foreign_gpus_and_nodes_that_take_no_job_are_absent() -> None:
    nodes = [Node(gpus=2, foreign_gpus=1), Node(gpus=2, available=False), Node(gpus=2), Node(gpus=2)]
    view = look(cluster(nodes, [Job(gpus=1, exclusive=True, occupied={2: 1}), Job(gpus=2)]))
    usual = np.float32(0.1 + 0.9 * 0.5)
    assert view.array[:, :2].tolist() == [[0, -1], [-1, -1], [usual, -1], [0, 0]]
    # Two GPUs of the last node, or one of the first and one of the last.
    lists = [view._actions.place(view.candidates[0], number - 1) for number in np.flatnonzero(view.mask())[1:]]
    assert lists == [([3], [2]), ([0, 3], [1, 1])]


def test_jobs_of_one_demand_that_ask_for_different_things_are_different_candidates() -> None:
    jobs = [Job(gpus=2, nodes=frozenset({0})), Job(gpus=2), Job(gpus=2), Job(gpus=4, split=Split.FIXED, min_nodes=2)]
    view = look(cluster([Node(gpus=2), Node(gpus=2)], jobs))
    assert [candidate.row for candidate in view.candidates] == [0, 1, 3]
    # The lists are (0), (1), (0, 1).
    assert view.mask()[1:].reshape(3, 3).tolist() == [[True, False, False], [True, True, True], [False, False, True]]


@pytest.mark.parametrize(
    ("column", "value"),
    [("bytes_per_step", np.nan), ("compute_s", np.nan), ("compute_s", 0.0), ("bytes_per_step", np.inf)],
)
def test_an_invalid_profile_counts_as_the_median(column: str, value: float) -> None:
    env = ContentionEnv(traces=[trace_of((0, 1, 60), models=["MoE"])])
    env.reset()
    state = env.simulation.state()
    assert state.profiles is not None
    profiles: ProfileTable = replace(state.profiles, **{column: np.array([value])})  # type: ignore[arg-type]
    good = look(state, cells="features", usual=(0.2, 0.3, 0.4)).array
    bad = look(replace(state, profiles=profiles), cells="features", usual=(0.2, 0.3, 0.4)).array
    assert good[0, 8].tolist() != bad[0, 8].tolist() == pytest.approx([1, 0.2, 0.3, 0.4, 0])
    assert np.isfinite(bad).all()


def test_more_jobs_than_slots_are_shown_as_far_as_there_are_slots() -> None:
    view = look(cluster([Node(gpus=2)], [Job(gpus=2, occupied={0: 2}), Job(gpus=2, occupied={0: 2}), Job(gpus=1)]))
    assert (view.array[0, :2] > 0).all()
    assert view.mask().tolist()[1:] == [False] * 3


@pytest.mark.parametrize("nodes", [[Node()] * 3, [Node()] * 5, [Node()] * 3 + [Node(gpus=9)], [Node(gpus=0)] * 4])
def test_clusters_that_it_does_not_know_are_refused(nodes: list[Node]) -> None:
    with pytest.raises(
        EncoderError, match=r"trained for 4 nodes of at most 8 GPUs, and the cluster has \d nodes of at most \d GPUs"
    ):
        Encoder(Encoding()).observe(cluster(nodes, []))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": "all"}, "nodes is 'all'; give lists or rules"),
        ({"candidates": 0}, "candidates is 0"),
        ({"usual": (0.1, 2.0, 0.1)}, "three numbers from 0 to 1"),
        ({"usual": (0.1, float("nan"), 0.1)}, "three numbers from 0 to 1"),
        ({"num_nodes": 64}, "give nodes='rules'"),
    ],
)
def test_encodings_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(EncoderError, match=says):
        Encoding(**options)
