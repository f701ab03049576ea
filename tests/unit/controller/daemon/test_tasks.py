"""The controller's background tasks: each that is killed once comes back, and is counted."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog

import controller
from controller.base.clock import Clock, RealClock, VirtualClock
from controller.base.config import ControllerSettings
from controller.base.errors import SlurmReplyError
from controller.base.events import LoggedEvent
from controller.cycle.decision.decider import Decider
from controller.daemon.assemble import run_controller
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.client import SlurmFacts
from controller.slurm.embedded import EmbeddedSlurm
from controller.slurm.model.job import JobKey
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal, RunRecord
from policies.api import PolicySpec, load_policy
from policies.serving.client import PolicyClient
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.supervise import Tasks, Work
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.policies.processes import eventually

BEGUN_AGAIN = {
    "agents-present", "agents-store", "agents-windows", "contention", "leadership", "learn", "log-reports", "preemptions",
    "profiles", "slurm-order", "start-estimates", "switches", "threshold",
}  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def test_each_task_that_fails_once_is_restarted_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: Counter[str] = Counter()
    supervisors: list[Tasks] = []
    running = Tasks.running

    def killed_once(self: Tasks, name: str, work: Work, **more: Any) -> Any:
        supervisors.append(self)

        async def first_killed() -> None:
            begun[name] += 1
            if begun[name] == 1 and name in BEGUN_AGAIN:
                raise RuntimeError("killed by the test")
            await work()

        return running(self, name, first_killed, **more)

    monkeypatch.setattr(Tasks, "running", killed_once)
    monkeypatch.setattr("policies.serving.runtime.tasks.supervise.FIRST_PAUSE_S", 0.01)
    (folder / "controller.toml").write_text(
        f'partitions = ["dl"]\nslurm_client = "embedded"\nruntime_dir = "{folder}"\nstate_dir = "{folder}/state"\n'
        f'policy_address = "unix://{folder}/policy.sock"\nagents_address = "unix://{folder}/agents.sock"\nmetrics_address = ""\n'
    )

    async def all_again() -> bool:
        return all(begun[name] >= 2 for name in BEGUN_AGAIN)

    daemon = asyncio.create_task(run_controller(folder / "controller.toml"))
    try:
        await eventually(all_again)
        (tasks,) = set(supervisors)
        assert {name: tasks.failures[name] for name in BEGUN_AGAIN} == dict.fromkeys(BEGUN_AGAIN, 1)
        assert tasks.failures.keys() == BEGUN_AGAIN | {"lease", "admin-calls", "admin-front", "agent-calls", "relay"}
        assert len(tasks.troubles) == len(BEGUN_AGAIN)
        assert not daemon.done()
    finally:
        daemon.cancel()
        await asyncio.gather(daemon, return_exceptions=True)
        structlog.reset_defaults()


def daemon_in(folder: Path, journal: Journal, endpoint: FakeEndpoint, clock: Clock | None = None) -> Controller:
    clock = RealClock() if clock is None else clock
    settings = ControllerSettings(partitions=("dl",), runtime_dir=folder, state_dir=folder / "state")
    decider = Decider(endpoint, load_policy("fifo"), 0.5, clock)
    return Controller(settings, EmbeddedSlurm(clock=clock).client, decider, journal, clock, PolicyClient)


async def test_without_a_heartbeat_the_controller_ends_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_path: Path, _lease: object) -> None:
        raise ZeroDivisionError("no lease")

    monkeypatch.setattr("controller.daemon.heartbeat.write_lease", broken)
    with closing(Journal(folder / "journal.sqlite")) as journal, closing(WakePipe(folder / "wake")) as wake:
        daemon = daemon_in(folder, journal, FakeEndpoint())
        with pytest.raises(ZeroDivisionError, match="no lease"):
            await asyncio.wait_for(daemon.run(wake, Notifier({})), 60)
        assert daemon.tasks.failures["lease"] == 1


async def test_a_call_cancelled_by_another_task_costs_a_cycle_and_not_the_controller(folder: Path) -> None:
    with closing(Journal(folder / "journal.sqlite")) as journal, closing(WakePipe(folder / "wake")) as wake:
        daemon = daemon_in(folder, journal, FakeEndpoint())
        snapshot, times = daemon.client.snapshot, 0

        async def cancelled_once() -> object:
            nonlocal times
            times += 1
            if times == 1:
                raise asyncio.CancelledError
            return await snapshot()

        daemon.client.snapshot = cancelled_once  # type: ignore[method-assign, assignment]
        running = asyncio.create_task(daemon.run(wake, Notifier({})))

        async def well() -> bool:
            return daemon.health.cycles > 0 or running.done()

        await eventually(well)
        daemon.stop()
        await asyncio.wait_for(running, 60)
        assert times == 2


@pytest.mark.parametrize("stopped_first", [False, True])
async def test_a_cycle_that_takes_long_does_not_delay_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, stopped_first: bool
) -> None:
    monkeypatch.setattr("controller.daemon.ending.WITHIN_S", 0.2)
    with closing(Journal(folder / "journal.sqlite")) as journal, closing(WakePipe(folder / "wake")) as wake:
        daemon = daemon_in(folder, journal, FakeEndpoint())
        HoldFolder(folder / "holds").make()
        (folder / "holds" / "1").write_text("1")  # so that a cycle is run after the request to end, too
        entered, cut_off = asyncio.Event(), asyncio.Event()

        async def hangs() -> object:
            entered.set()
            try:
                return await asyncio.sleep(3600)
            finally:
                cut_off.set()

        daemon.client.snapshot = hangs  # type: ignore[method-assign, assignment]
        if stopped_first:
            daemon.stop()
        running = asyncio.create_task(daemon.run(wake, Notifier({})))
        await entered.wait()
        daemon.stop()
        await asyncio.wait_for(running, 60)
        assert cut_off.is_set()


async def test_slurms_settings_are_read_again_at_intervals_and_after_a_reload(folder: Path) -> None:
    """`scontrol reconfigure` may hide jobs from other users while the controller runs."""
    with closing(Journal(folder / "journal.sqlite")) as journal, closing(WakePipe(folder / "wake")) as wake:
        clock = VirtualClock()
        daemon = daemon_in(folder, journal, FakeEndpoint(), clock)
        said, away = {"PrivateData": "none"}, False

        async def facts() -> SlurmFacts:
            if away:
                raise SlurmReplyError("not now")
            return SlurmFacts((22, 5, 8), "test", "embedded", dict(said))

        daemon.client.facts = facts  # type: ignore[method-assign]

        async def event_text() -> str:
            await daemon._one_cycle(wake)
            assert daemon.facts is not None
            return daemon.facts.settings["PrivateData"]

        assert await event_text() == "none"
        said |= {"PrivateData": "jobs", "SchedulerParameters": "requeue_delay=300"}
        assert await event_text() == "none"
        assert daemon.knowledge.requeue_delay_s == 120.0
        await clock.advance(60)
        assert await event_text() == "jobs"
        assert daemon.knowledge.requeue_delay_s == 300.0
        said["PrivateData"] = "all"
        daemon.reload(daemon.settings)
        away = True
        assert await event_text() == "jobs"
        await clock.advance(60)
        away = False
        assert await event_text() == "all"
        assert daemon.health.cycles == 5


async def test_a_server_that_became_another_policy_is_reported_without_a_request(folder: Path) -> None:
    class Renamed(FakeEndpoint):
        async def describe(self, deadline_s: float) -> PolicySpec:
            self._answer()
            return PolicySpec(name=names[self.connection], source="tests")

    names, endpoint = ["one", "two", "two"], Renamed()
    with closing(Journal(folder / "journal.sqlite")) as journal, closing(WakePipe(folder / "wake")) as wake:
        daemon = daemon_in(folder, journal, endpoint)
        with daemon.events.listen() as events:

            async def shown() -> str | None:
                await daemon._one_cycle(wake)
                return daemon.decider.spec.name if daemon.decider.spec is not None else None

            assert await shown() == "one"
            endpoint.connection = 1
            assert daemon.decider.spec is None  # it may be any policy now
            assert await shown() == "two"
            endpoint.connection, endpoint.away = 2, True
            assert await shown() is None
            assert "nobody listens" in daemon.decider.last_error
            endpoint.away = False
            assert await shown() == "two"
            assert daemon.decider.last_error == ""
            (event_text,) = [event.text for event in _all(events) if event.kind == "policy"]
            assert event_text == "two decides now at unix:///fake, in place of one"


def _all(events: asyncio.Queue[LoggedEvent]) -> list[LoggedEvent]:
    return [events.get_nowait() for _ in range(events.qsize())]


async def test_jobs_that_end_while_the_policy_learns_of_others_are_reported_next(folder: Path) -> None:
    class Slow(FakeEndpoint):
        async def learn(self, outcomes: Any) -> int:
            await let_go.wait()
            return await super().learn(outcomes)

    let_go, endpoint = asyncio.Event(), Slow()
    with closing(Journal(folder / "journal.sqlite")) as journal:
        daemon = daemon_in(folder, journal, endpoint)
        async with daemon.tasks.running("learn", lambda: daemon.outcomes.report_to(daemon.decider)):
            for number in range(1, 4):
                daemon.outcomes.add((ended(str(number)),))
                await asyncio.sleep(0.01)
            let_go.set()

            async def all_told() -> bool:
                return [outcome.job_id for outcome in endpoint.learned] == ["1", "2", "3"]

            await eventually(all_told)


def ended(job_id: str) -> RunRecord:
    return RunRecord(
        key=JobKey(job_id, 1), user="ann", name="train", num_gpus=1, num_nodes=1, start_time_s=2.0, end_time_s=3.0,
        service_s=1.0, state="COMPLETED",
    )  # fmt: skip


BARE_TASKS = re.compile(r"\b(?:asyncio|loop|get_running_loop\(\))\.(?:create_task|ensure_future|gather|wait_for)\(")
ALLOWED = {
    "policies/serving/runtime/tasks/task_groups.py": "it is what the others use",
    "nodeagent/telemetry/nvml.py": "start and end of a child outlast one reading; `close` ends them, a cancelled start is counted",
    "controller/slurm/embedded/cluster.py": "an emulated Slurm",
    "controller/base/clock.py": "the virtual clock of tests",
    "controller/cli/doctor/look.py": "a command that ends",
    "controller/cli/doctor/agents.py": "a command that ends",
}


def test_no_task_is_begun_outside_a_group() -> None:
    """Also no `wait_for`, which can lose a cancellation in Python 3.11."""
    root = Path(controller.__file__).parents[1]
    begun = {
        path.relative_to(root).as_posix()
        for package in ("controller", "nodeagent", "policies")
        for path in (root / package).rglob("*.py")
        if BARE_TASKS.search(path.read_text())
    }
    assert begun == set(ALLOWED)
