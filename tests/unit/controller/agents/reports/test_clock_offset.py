"""When reports were made: whatever is done to clocks, and however long they were on their way."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from controller.agents.reports.clock_offset import AgentClock

NS = 1_000_000_000
EPOCH_S = 1_800_000_000.0


class Machines:
    """True time, by which a node's and the controller's monotonic clock differ by 500 s."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self.set_by_s = 0.0
        """What somebody has added to the controller's wall clock."""
        self.clock = AgentClock(lambda: self.at_s, lambda: EPOCH_S + self.at_s + self.set_by_s)

    def node_ns(self, at_s: float | None = None) -> int:
        return round(((self.at_s if at_s is None else at_s) - 500.0) * NS)

    def send(self, on_its_way_s: float = 0.0) -> None:
        sent_ns = self.node_ns()
        self.at_s += on_its_way_s
        self.clock.arrived(sent_ns)

    def when(self, at_s: float) -> float:
        found = self.clock.when(self.node_ns(at_s))
        assert found is not None
        return round(found - EPOCH_S, 6)


def test_before_the_first_batch_the_offset_is_unknown() -> None:
    assert AgentClock().when(1) is None


def test_reports_that_waited_for_hours_are_as_old_as_they_are() -> None:
    machines = Machines()
    machines.send(0.01)
    assert [machines.when(at_s) for at_s in (1000.0, 900.0, -9000.0)] == [1000.01, 900.01, -8999.99]


def test_the_controller_s_own_clock_may_be_set() -> None:
    machines = Machines()
    machines.send()
    machines.set_by_s = 3600.0
    machines.send()
    assert machines.when(990.0) == 990.0 + 3600.0


@given(st.lists(st.tuples(st.floats(0.001, 30.0), st.floats(0.0, 20.0)), min_size=1, max_size=60))
def test_it_is_never_early_and_as_late_as_the_quickest_of_late(batches: list[tuple[float, float]]) -> None:
    # Given batches that are held up for any time, with pauses between
    machines, quickest_s = Machines(), 1e9
    for pause_s, held_up_s in batches:
        machines.at_s += pause_s
        machines.send(held_up_s)
        quickest_s = min(quickest_s, held_up_s)
        late_s = machines.when(1000.0) - 1000.0
        assert late_s >= -1e-6
        if machines.at_s < 1300.0:
            assert late_s <= quickest_s + 1e-6


def test_clocks_that_drift_apart_are_followed() -> None:
    machines, rng = Machines(), random.Random(1)
    for at in range(2000):  # 5 s each, in which the node's clock goes ahead by 100 ppm
        machines.at_s = 1000.0 + at * 5.0
        machines.clock.arrived(
            machines.node_ns() + round((machines.at_s - 1000.0) * 1e-4 * NS) - rng.randrange(NS // 100)
        )
    now_ns = machines.node_ns() + round((machines.at_s - 1000.0) * 1e-4 * NS)
    found = machines.clock.when(now_ns)
    assert found is not None
    assert abs(found - EPOCH_S - machines.at_s) < 0.1  # it has drifted by a second
