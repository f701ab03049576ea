"""Elastic jobs: what policies see of their sizes, and that a run in which they are resized knows how fast they are then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from policies.api import Decision
from policies.model import ClusterState, Placement
from policies.wire.messages import parse_state, serialize_state
from simulator.cluster.cluster import parse_cluster
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario
from tests.unit.simulator.engine.build import Does, spans_s, trace_of

ELASTIC = {"min_gpus": [1, 2, 2], "max_gpus": [8, 2, 4]}


def all_that_is_there(state: ClusterState) -> Decision:
    """The first job gets as many GPUs of the first node as it takes."""
    most = state.jobs.sizes[1]
    return Decision({0: Placement.of({0: min(int(most[0]), int(state.nodes.gpus[0]))})} if len(state.jobs) else {})


RESIZES = Does(all_that_is_there, name="grows", resizes=True)
PLAIN = Does(all_that_is_there, name="plain")


def states(**columns: object) -> list[ClusterState]:
    """Jobs start in order of arrival."""
    simulation = Simulation(
        trace_of((0, 4, 9), (5, 2, 9), (6, 2, 9), **columns), parse_cluster("1x8"), Does(lambda _: Decision({}))
    )
    found = [simulation.state()]
    while simulation.advance():
        found.append(simulation.state())
    return found


class TestStates:
    def test_policies_see_the_sizes_of_the_jobs_that_are_there(self) -> None:
        empty, first, second, third = states(**ELASTIC)
        assert empty.jobs.min_gpus is empty.jobs.max_gpus is None
        for state, low, high in ((first, [1], [8]), (second, [1, 2], [8, 2]), (third, [1, 2, 2], [8, 2, 4])):
            assert state.jobs.min_gpus is not None
            assert [column.tolist() for column in state.jobs.sizes] == [low, high]
            np.testing.assert_array_equal(parse_state(serialize_state(state)).jobs.sizes, state.jobs.sizes)
        assert third.jobs.num_gpus.tolist() == [4, 2, 2]

    def test_policies_see_no_sizes_where_every_job_takes_what_it_requests(self) -> None:
        for state in states():
            assert state.jobs.min_gpus is state.jobs.max_gpus is None
            np.testing.assert_array_equal(state.jobs.sizes, [state.jobs.num_gpus] * 2)


class TestSpeeds:
    """One job of 4 GPUs and 100 s that takes up to 8; another of exactly 2."""

    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        path = tmp_path / "elastic.csv"
        rows = ["job_id,submit_time_s,num_gpus,duration_s,model,min_gpus,max_gpus", "a,0,4,100,vgg16,1,8"]
        path.write_text("\n".join([*rows, "b,500,2,10,vgg16,2,2", ""]))
        return path

    @staticmethod
    def scenario(trace: Path, *slowdown: str) -> Scenario:
        return Scenario.of(RunOptions(trace, "1x8", slowdown=slowdown or ("locality",)), record=False)

    def test_a_policy_that_resizes_gets_the_model_of_elastic_scaling(self, trace: Path) -> None:
        scenario = self.scenario(trace)
        assert scenario.assumptions("grows", RESIZES)["slowdown"] == ["locality", "scaling"]
        simulation = scenario.simulation(RESIZES)
        simulation.run()
        # On one node VGG16 loses nothing to communicating: twice the GPUs, half the time.
        assert spans_s(simulation)["a"] == pytest.approx((0, 50))

    def test_requesting_it_explicitly_changes_nothing(self, trace: Path) -> None:
        for text in ("scaling", "scaling:default=vgg16"):
            assert self.scenario(trace, text).slowdown(RESIZES) == (text,)

    def test_other_policies_do_not_get_it(self, trace: Path, tmp_path: Path) -> None:
        assert self.scenario(trace).slowdown(PLAIN) == ("locality",)
        assert self.scenario(trace, "none").slowdown(PLAIN) == ("none",)
        fixed = tmp_path / "fixed.csv"
        fixed.write_text("job_id,submit_time_s,num_gpus,duration_s\na,0,4,100\n")
        for names in (("locality",), ("none",)):
            assert self.scenario(fixed, *names).slowdown(RESIZES) == names

    def test_without_any_model_resizing_is_refused(self, trace: Path) -> None:
        scenario = self.scenario(trace, "none")
        with pytest.raises(SettingError, match=r"policy grows resizes elastic jobs.*--slowdown scaling"):
            scenario.simulation(RESIZES)
        scenario.simulation(PLAIN)
