"""One decision cycle on a large cluster, from Slurm's text to a plan; nothing is applied.

Made-up text replaces scontrol; everything behind it is the code of production: the command-line client parses it, the
observer lays out the columns, a policy server in a process of its own decides, and the plan is checked. Between two cycles
run times and loads tick, and jobs come and go.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.cycle import Cycle
from controller.cycle.decision.decider import Decided, Decider
from controller.cycle.decision.named_gpus import Binds, always_binds
from controller.observe.knowledge import Knowledge
from controller.preempt.manager import PreemptionManager
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.run import Completed
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal
from policies.api import Decision, Outcome, PolicySpec, load_policy
from policies.model import ClusterState
from policies.serving.client import PolicyClient
from policies.serving.runtime.gc_pauses import paused_collector
from slurm.testbed.installation import Installation
from tests.bench.measuring.figures import Findings, percentile
from tests.bench.measuring.scontrol_text import ScontrolText

PENDING = 10_000
NODES = 2_000
CHURN = 100
"""Jobs that leave the queue between two cycles; as many arrive."""
PHASES = ("parse", "observe", "policy", "plan")
"""`policy`: encode the columns, send them, decide, decode the answer. `observe`: everything before and after it."""
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Size and state of the cluster."""

    name: str
    running: int
    """Jobs."""
    full: bool
    """All GPUs are taken except some on every fiftieth node; otherwise all nodes without a job are free."""


SCENARIOS = (Scenario("busy cluster", 500, full=True), Scenario("cluster with room", 500, full=False))


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("cycle")
    with Installation.prepare("bench-cycle", parent=Path(tempfile.gettempdir())) as headway:
        headway.start_policy("srtf")
        for scenario in SCENARIOS:
            times = asyncio.run(measure(scenario, headway, cycles=20 if quick else 100))
            _report(findings, scenario, times)
    return findings


@dataclass(slots=True)
class Times:
    """Seconds per cycle and phase; the first cycle has no earlier state."""

    first: dict[str, float] = field(default_factory=dict)
    phases: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    starts: list[int] = field(default_factory=list)
    """Jobs that the plan starts."""

    @property
    def totals(self) -> list[float]:
        """Whole cycles."""
        return [sum(parts) for parts in zip(*self.phases.values(), strict=True)]

    def add(self, cycle: dict[str, float], starts: int) -> None:
        """One cycle."""
        if not self.first:
            self.first = cycle
            return
        self.starts.append(starts)
        for phase, seconds in cycle.items():
            self.phases[phase].append(seconds)


async def measure(
    scenario: Scenario, headway: Installation, *, cycles: int, pending: int = PENDING, nodes: int = NODES
) -> Times:
    """Run the first cycle and that many others."""
    token = Clockface.secret()
    cluster = _Cluster(scenario, token, pending, nodes, cycles + 1)
    runner, clock = _Prepared(), RealClock()
    client = CommandLineClient(runner, token)
    endpoint = _Timed(PolicyClient(headway.policy_address))
    decider = _NothingStarts(endpoint, load_policy("fifo-skip"), _DEADLINE_S, clock)
    settings = ControllerSettings(partitions=("dl",), state_dir=headway.folder / scenario.name.replace(" ", "-"))
    times = Times()
    with closing(Journal(settings.journal_path)) as journal, paused_collector() as collector:
        ledger, events = journal.load_ledger(), EventLog(clock)
        preemptions = PreemptionManager(lambda: settings, journal, ledger, events, clock)
        holds = HoldFolder(settings.holds_path)
        cycle = Cycle(
            lambda: settings, client, decider, journal, ledger, events, clock, preemptions, holds, Knowledge()
        )
        for _ in range(cycles + 1):
            runner.answers = cluster.answers()
            runner.own_s = 0.0
            collector.collect()
            begun_s = time.perf_counter()
            snapshot = await client.snapshot()
            parsed_s = time.perf_counter()
            result = await cycle.run(snapshot)
            cycle.reported()
            ended_s = time.perf_counter()
            if decider.problem or len(result.observation.state.pending) != pending:
                raise RuntimeError(
                    f"not what was to be measured: {decider.problem}, {len(result.observation.rows)} jobs"
                )
            phases = {
                "parse": parsed_s - begun_s - runner.own_s,
                "observe": ended_s - parsed_s - decider.last_s,
                "policy": endpoint.last_s,
                "plan": decider.last_s - endpoint.last_s,
            }
            times.add(phases, decider.starts)
            cluster.pass_time()
    await decider.close()
    return times


def _report(findings: Findings, scenario: Scenario, times: Times) -> None:
    totals = times.totals
    what = f"{scenario.name}: "
    starts = f"the plan starts {median(times.starts):.0f} jobs"
    findings.add(f"{what}p50", median(totals) * 1e3, "ms", 40.0, f"{len(totals)} cycles; {starts}")
    findings.add(f"{what}p99", percentile(totals, 99) * 1e3, "ms", 80.0, f"most {max(totals) * 1e3:.0f} ms")
    phases = ", ".join(f"{phase} {median(values) * 1e3:.1f}" for phase, values in times.phases.items())
    first = ", ".join(f"{phase} {seconds * 1e3:.0f}" for phase, seconds in times.first.items())
    findings.add(f"{what}first cycle", sum(times.first.values()) * 1e3, "ms", note=f"{first}; later: {phases}")
    findings.keep(f"{what}cycle, s", totals)
    for phase, values in times.phases.items():
        findings.keep(f"{what}{phase}, s", values)


class _Cluster:
    """The text of a cluster over time."""

    def __init__(self, scenario: Scenario, clock: Clockface, pending: int, nodes: int, cycles: int) -> None:
        self._scenario = scenario
        self._pending = pending
        self._text = ScontrolText(clock, pending=pending + CHURN * cycles, nodes=nodes, running=scenario.running)
        self._gone = 0
        self._waiting = self._lines()[scenario.running :]

    def _lines(self) -> list[bytes]:
        return self._text.jobs().splitlines(keepends=True)

    def pass_time(self) -> None:
        """Advance five seconds, in which jobs arrive and end."""
        self._text.tick()
        self._gone += CHURN

    def answers(self) -> dict[str, bytes]:
        """Return the present output of scontrol, by question."""
        # Only running jobs change: writing ten thousand equal lines again each time would take most of the benchmark.
        running = ScontrolText(
            self._text.clock, pending=0, nodes=self._text.nodes, running=self._scenario.running, now_s=self._text.now_s
        )
        waiting = self._waiting[self._gone : self._gone + self._pending]
        nodes = self._text.node_lines()
        if self._scenario.full:
            nodes = b"".join(_taken(nodes.splitlines(keepends=True)))
        return {
            "show job": running.jobs() + b"".join(waiting),
            "show node": nodes,
            "show partition": self._text.partitions(),
            "show reservation": self._text.reservations(),
        }


def _taken(lines: Sequence[bytes]) -> Iterable[bytes]:
    for number, line in enumerate(lines):
        yield line if number % 50 == 0 else line.replace(b" State=IDLE ", b" State=IDLE+DRAIN ")


class _Prepared:
    """A CommandRunner that answers as scontrol would."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.own_s = 0.0
        """Time spent on answers, which is not part of the cycle."""

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        """Answer line by line, each after its echo."""
        begun_s = time.perf_counter()
        parts = []
        for line in stdin.decode().splitlines():
            answer = self.answers.get(line)
            parts += [f"scontrol: {line}\n".encode(), f"{line.split()[-1]}\n".encode() if answer is None else answer]
        output = b"".join(parts)
        self.own_s += time.perf_counter() - begun_s
        return Completed((program, *arguments), 0, output, "")


class _NothingStarts(Decider):
    """Decides as in production, but discards the starts, so that nothing is applied."""

    starts = 0
    last_s = 0.0
    problem = ""

    async def decide(self, state: ClusterState, binds: Binds = always_binds) -> Decided | None:
        begun_s = time.perf_counter()
        decided = await super().decide(state, binds)
        self.last_s = time.perf_counter() - begun_s
        if decided is None:
            self.problem = self.last_error
            return None
        self.problem = decided.problem
        self.starts = len(decided.plan.starts)
        return replace(decided, plan=replace(decided.plan, starts=()))


class _Timed:
    """A PolicyEndpoint that passes calls on and times decisions."""

    def __init__(self, inner: PolicyClient) -> None:
        self._inner = inner
        self.address = inner.address
        self.last_s = 0.0

    @property
    def connection(self) -> int:
        return self._inner.connection

    @property
    def connected(self) -> bool:
        return self._inner.connected

    async def describe(self, deadline_s: float) -> PolicySpec:
        return await self._inner.describe(deadline_s)

    async def healthy(self, deadline_s: float) -> bool:
        return await self._inner.healthy(deadline_s)

    async def decide(self, state: ClusterState, deadline_s: float) -> Decision:
        """Encode the state, call the policy, decode its answer."""
        begun_s = time.perf_counter()
        try:
            return await self._inner.decide(state, deadline_s)
        finally:
            self.last_s = time.perf_counter() - begun_s

    async def learn(self, outcomes: Iterable[Outcome]) -> int:
        return await self._inner.learn(outcomes)

    async def close(self) -> None:
        await self._inner.close()
