"""Random runs for the property tests: a trace, a cluster, a policy and settings that belong together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from policies.api import Policy
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Estimates, NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.traces.trace import NS_PER_S, Trace
from tests.unit.simulator.engine.build import BASELINES, Asked, Sharing, baseline

INSTANTS = (0, 0, 1, 999_999_999, 10 * NS_PER_S, 300 * NS_PER_S, 10**8 * NS_PER_S + 7)
"""Times at which many submissions coincide, in ns."""


@dataclass(frozen=True)
class Scenario:
    """The inputs of a run, which can be run again, also under another policy."""

    trace: Trace
    cluster: str
    name: str
    anywhere: bool = False
    asked: bool = False
    sharing: bool = False
    settings: Settings = field(default_factory=Settings)

    @property
    def policy(self) -> Policy:
        policy = baseline(self.name, anywhere=self.anywhere, round_s=60.0)
        return Asked(policy) if self.asked else policy

    def start(self) -> Simulation:
        slowdown = [Sharing()] if self.sharing else None
        return Simulation(self.trace, parse_cluster(self.cluster), self.policy, self.settings, slowdown)  # type: ignore[arg-type]

    def run(self) -> Simulation:
        simulation = self.start()
        simulation.run()
        return simulation

    def under(self, name: str) -> Scenario:
        return replace(self, name=name)


@st.composite
def traces(draw: st.DrawFn, gpus: int, *, fixed: bool) -> Trace:
    """Up to 14 jobs of up to so many GPUs: clumps, zero gaps, equal durations, finishes that meet arrivals."""
    count = draw(st.integers(1, 14))
    submit: list[int] = []
    duration: list[int] = []
    for row in range(count):
        duration.append(
            draw(st.one_of(st.sampled_from([1, 5 * NS_PER_S, 100 * NS_PER_S]), st.integers(1, 200 * NS_PER_S)))
        )
        meets = [submit[row - 1] + duration[row - 1]] if row else []
        submit.append(draw(st.one_of(st.sampled_from([*INSTANTS, *meets]), st.integers(0, 300 * NS_PER_S))))
    sizes = draw(st.lists(st.integers(1, gpus), min_size=count, max_size=count))
    preemptible = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if fixed else None
    ids = [f"j{row}" for row in range(count)]
    users = [f"u{row % 2}" for row in range(count)]
    return Trace.of("drawn", ids, submit, sizes, duration, preemptible=preemptible, user=users)


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    names: tuple[str, ...] = BASELINES,
    failures: bool = False,
    sharing: bool | None = None,
    costs: tuple[float, ...] = (0.0, 2.5),
    fixed: bool = True,
    asked: bool | None = None,
) -> Scenario:
    """A random run. With `failures` nodes go down, are drained, and are all up again in the end."""
    nodes, gpus = draw(st.sampled_from([(1, 2), (2, 4), (3, 2)]))
    trace = draw(traces(nodes * gpus, fixed=fixed))
    changes: list[NodeChange] = []
    if failures:
        times = st.one_of(st.floats(0, 600, allow_nan=False), st.sampled_from([0.0, 10.0, 300.0]))
        kinds = st.sampled_from(["down", "drain", "up"])
        change = st.builds(NodeChange, times, st.integers(0, nodes - 1), kinds)
        changes = draw(st.lists(change, max_size=6))
        changes += [NodeChange(700.0, node, "up") for node in range(nodes)]
    settings = Settings(
        seed=draw(st.integers(0, 3)),
        preempt_cost_s=draw(st.sampled_from(costs)),
        estimates=draw(st.sampled_from([Estimates(), Estimates("noisy", 0.8), Estimates("history")])),
        checkpoint_interval_s=draw(st.sampled_from([float("inf"), 7.0])),
        changes=tuple(changes),
        record=True,
    )
    return Scenario(
        trace,
        f"{nodes}x{gpus}",
        draw(st.sampled_from(names)),
        draw(st.booleans()),
        draw(st.integers(0, 3)) == 0 if asked is None else asked,
        draw(st.booleans()) if sharing is None else sharing,
        settings,
    )
