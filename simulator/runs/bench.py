"""Benchmark of the simulator: whole processes from a cold start, a curve over the number of jobs, the phases of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from simulator.errors import SettingError
from simulator.kernel import COMPILED, MEND, kernel_text

PHILLY_JOBS = 111_597
PHILLY_CLUSTER = "311x8"
CURVE = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
CURVE_CLUSTER = "2000x8"
CURVE_LOAD = 0.8
QUICK_MOST = 30_000
MEMORY_GB = 1.0
_PROGRAM = """
import sys
from simulator.cli.main import main
peak = open(int(sys.argv.pop(1)), "w")
try:
    main()
finally:
    with open("/proc/self/status") as status, peak:
        peak.writelines(line for line in status if line.startswith("VmHWM"))
"""
"""The command, which then writes the peak of its own memory: wait4 begins at the memory of the process that forked it."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One command that is timed, and its target."""

    name: str
    jobs: int
    cluster: str
    policy: str
    target_s: float | None = None
    slowdown: str = "locality"
    load: float = CURVE_LOAD
    """Load of a generated trace."""
    most_gb: float = MEMORY_GB
    """Target of the memory, where there is one of the time."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurement of whole processes, several one after the other."""

    name: str
    jobs: int
    cluster: str
    policy: str
    target_s: float | None
    best_s: float
    """Wall time, interpreter and imports included."""
    median_s: float
    cpu_s: float
    """User and system time of the best one: the wall time on an idle machine."""
    peak_gb: float
    runs: int
    avg_jct_s: float
    missed: bool
    """The best wall time or the memory is above its target."""


@dataclass(frozen=True, slots=True)
class Report:
    """All measurements."""

    speed: list[Measured] = field(default_factory=list)
    curve: list[Measured] = field(default_factory=list)
    profile: list[dict[str, object]] = field(default_factory=list)
    kernel: str = field(default_factory=kernel_text)
    """`compiled`, or `interpreted` where compiling the kernel failed: times are then several times longer."""

    @property
    def missed(self) -> bool:
        """True if any target was missed."""
        return any(row.missed for row in [*self.speed, *self.curve])


SMALL = (
    Case("2,000 jobs", 2_000, "8x8", "fifo", 0.6),
    Case("2,000 jobs", 2_000, "8x8", "srtf", 1.0),
)
LARGE = (
    Case("Philly", PHILLY_JOBS, PHILLY_CLUSTER, "fifo", 6.0),
    Case("Philly", PHILLY_JOBS, PHILLY_CLUSTER, "srtf", 25.0),
    Case("Philly", PHILLY_JOBS, PHILLY_CLUSTER, "las", 25.0),
    Case("Philly", PHILLY_JOBS, "200x8", "srtf", 5.0),
    Case("Philly", PHILLY_JOBS, "150x8", "srtf", 5.0),
    Case("Philly, max-min", PHILLY_JOBS, PHILLY_CLUSTER, "srtf", 90.0, "max-min"),
)
LONGEST = tuple(
    Case(f"1,000,000 jobs, load {load:g}", 1_000_000, CURVE_CLUSTER, policy, 600.0, load=load, most_gb=2.0)
    for load in (0.95, 1.1)
    for policy in ("srtf", "las")
)
"""Runs that may take minutes each; not part of `quick`."""


def bench(quick: bool, philly: Path | None, repeat: int, say: Say) -> Report:
    """Measure everything; `say` is called with the name of each step. Raises SimulatorError.

    Without `philly`, a trace of as many jobs is generated instead.
    """
    if philly is not None and not philly.is_file():
        raise SettingError(f"--philly {philly}: there is no such file; leave it out to generate a trace instead")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="headway-sim-bench-") as folder:
        traces = _Traces(Path(folder), philly)
        installed = as_installed(Path(folder) / "bytecode")
        _timed(_words(SMALL[0], traces.of(SMALL[0])), installed)
        for case in SMALL if quick else (*SMALL, *LARGE, *LONGEST):
            say(f"{case.name}, {case.cluster}, {case.policy}")
            times = repeat if case in SMALL else 1 if case in LONGEST else min(repeat, 2)
            report.speed.append(measure(case, traces.of(case), times, installed))
        for case in curve_cases(quick):
            say(f"{case.name}, {case.cluster}, {case.policy}")
            report.curve.append(measure(case, traces.of(case), 1, installed))
        for case in (SMALL[0], SMALL[1], *(() if quick else LARGE[:3])):
            say(f"profile of {case.name}, {case.policy}")
            report.profile.append(profile(case, traces.of(case), installed))
    return report


def curve_cases(quick: bool) -> Iterator[Case]:
    """Yield cases with more and more jobs that arrive at the same rate in the same cluster."""
    for jobs in CURVE:
        if not quick or jobs <= QUICK_MOST:
            yield from (Case(f"{jobs:,} jobs", jobs, CURVE_CLUSTER, policy) for policy in ("fifo", "srtf"))


class _Traces:
    """The traces of the cases, each generated once."""

    def __init__(self, folder: Path, philly: Path | None) -> None:
        self._folder = folder
        self._philly = philly

    def of(self, case: Case) -> Path:
        """Return the trace of a case."""
        if self._philly is not None and case in LARGE:
            return self._philly
        path = self._folder / f"{case.jobs}-{case.cluster}-{case.load:g}.csv"
        if not path.exists():
            from simulator.traces.generators import from_text, generate
            from simulator.traces.write import write_trace

            nodes, _, gpus = case.cluster.partition("x")
            load = {"load": str(case.load), "cluster_gpus": str(int(nodes) * int(gpus))}
            write_trace(generate("philly", from_text("philly", {"jobs": str(case.jobs), "seed": "0", **load})), path)
        return path


def as_installed(folder: Path) -> dict[str, str]:
    """Return an environment with bytecode in that folder, as installed modules have, whatever is set here.

    The first process writes it and must not be counted.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder)}


def measure(case: Case, trace: Path, times: int, environment: Mapping[str, str] | None = None) -> Measured:
    """Run the command of a case so many times. Raises SettingError if it fails."""
    runs = [_timed(_words(case, trace), environment) for _ in range(times)]
    best = min(runs, key=lambda run: run.wall_s)
    peak_gb = max(run.peak_bytes for run in runs) / 1e9
    slow = case.target_s is not None and best.wall_s > case.target_s
    return Measured(
        name=case.name,
        jobs=best.figures["jobs"],
        cluster=case.cluster,
        policy=case.policy,
        target_s=case.target_s,
        best_s=best.wall_s,
        median_s=median(run.wall_s for run in runs),
        cpu_s=best.cpu_s,
        peak_gb=peak_gb,
        runs=times,
        avg_jct_s=best.figures["avg_jct_s"],
        missed=slow or (case.target_s is not None and peak_gb > case.most_gb),
    )


def _words(case: Case, trace: Path) -> list[str]:
    return [
        *("run", "--trace", str(trace), "--cluster", case.cluster, "--policy", case.policy),
        *("--slowdown", case.slowdown, "--drop-impossible", "--json"),
    ]


@dataclass(frozen=True, slots=True)
class _Run:
    wall_s: float
    cpu_s: float
    peak_bytes: int
    figures: dict[str, Any]


def _timed(words: Sequence[str], environment: Mapping[str, str] | None) -> _Run:
    """Time one process, from its start to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile("w+") as peak:
        begin = time.perf_counter()
        program = [sys.executable, "-c", _PROGRAM, str(peak.fileno()), *words]
        process = subprocess.Popen(
            program, stdout=out, stderr=subprocess.PIPE, env=environment, pass_fds=[peak.fileno()]
        )
        assert process.stderr is not None
        problem = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        if process.returncode:
            raise SettingError(f"headway-sim {' '.join(words)} failed ({process.returncode}): {problem.strip()[-300:]}")
        out.seek(0)
        figures = json.loads(out.read())
        peak.seek(0)
        peak_kib = int(peak.read().split()[1])
    return _Run(wall_s, usage.ru_utime + usage.ru_stime, peak_kib * 1024, figures)


_PHASES = """
import gc, sys, time
gc.disable()
begin = time.perf_counter()
import json
from simulator.results.metrics import summary
from simulator.runs.progress import collect_seldom
from simulator.results.result import Result
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario, make_policy
from pathlib import Path
options = RunOptions(Path(sys.argv[1]), sys.argv[2], (sys.argv[4],), drop_impossible=True)
policy = make_policy(sys.argv[3], options)
imported = time.perf_counter()
scenario = Scenario.of(options, record=False)
read = time.perf_counter()
simulation = scenario.simulation(policy)
made = time.perf_counter()
collect_seldom()
clock, clock_ns, settle_ns = time.perf_counter_ns, 0, 0
while True:
    start = clock()
    on = simulation.advance()
    clock_ns += clock() - start
    if not on:
        break
    start = clock()
    simulation.decide()
    settle_ns += clock() - start
ran = time.perf_counter()
decide_ns = sum(simulation.decision_ns)
summary(Result.of(simulation, sys.argv[3], ran - made, dropped=scenario.dropped))
done = time.perf_counter()
print(json.dumps({
    "instants": simulation.decisions, "import_s": imported - begin, "read_s": read - imported, "make_s": made - read,
    "events_s": clock_ns / 1e9, "decide_s": decide_ns / 1e9, "settle_s": (settle_ns - decide_ns) / 1e9, "figures_s": done - ran,
}))
"""


def profile(case: Case, trace: Path, environment: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the seconds of each phase of a run, in a process of its own."""
    words = [sys.executable, "-c", _PHASES, str(trace), case.cluster, case.policy, case.slowdown]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SettingError(f"the profile of {case.policy} failed: {done.stderr.strip()[-300:]}")
    phases: dict[str, object] = json.loads(done.stdout)
    return {"name": case.name, "cluster": case.cluster, "policy": case.policy, **phases}


def as_json(report: Report) -> str:
    """Return everything as JSON."""
    return json.dumps(asdict(report) | {"missed": report.missed}, indent=2)


# Tables


def lines_of(report: Report) -> Iterator[str]:
    """Yield everything as tables in Markdown, as the docs have them."""
    if report.kernel != COMPILED:
        yield f"The kernel is {report.kernel}: expect several times the figures of docs/benchmarks.md. {MEND}"
        yield ""
    yield from _table(
        ("what", "cluster", "policy", "best", "median", "CPU", "peak memory", "target"), map(_speed_row, report.speed)
    )
    yield ""
    rows = map(_curve_row, report.curve)
    yield from _table(("jobs", "policy", "whole process", "CPU", "CPU per job", "peak memory"), rows)
    yield ""
    phases = ("import", "read", "make", "events", "decide", "settle", "figures")
    yield from _table(("what", "policy", "instants", *phases), (_profile_row(row, phases) for row in report.profile))


def _speed_row(row: Measured) -> tuple[str, ...]:
    best = f"{row.best_s:.2f} s"
    return (
        row.name,
        row.cluster,
        row.policy,
        f"**{best}**" if row.missed else best,
        f"{row.median_s:.2f} s",
        f"{row.cpu_s:.2f} s",
        f"{row.peak_gb * 1000:.0f} MB",
        f"≤ {row.target_s:g} s",
    )


def _curve_row(row: Measured) -> tuple[str, ...]:
    each = f"{row.cpu_s / row.jobs * 1e6:.0f} µs"
    return (
        f"{row.jobs:,}",
        row.policy,
        f"{row.best_s:.2f} s",
        f"{row.cpu_s:.2f} s",
        each,
        f"{row.peak_gb * 1000:.0f} MB",
    )


def _profile_row(row: dict[str, Any], phases: Sequence[str]) -> tuple[str, ...]:
    return row["name"], row["policy"], f"{row['instants']:,}", *(f"{row[f'{phase}_s']:.2f} s" for phase in phases)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
