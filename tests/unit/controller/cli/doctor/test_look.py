"""headway doctor: a sound installation, and every way in which one can be unsound."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest

import policies.serving.client  # noqa: F401 - imported before the user is changed
from controller.base.clock import VirtualClock
from controller.base.config import ControllerSettings
from controller.base.lease import Lease
from controller.cli.doctor import host as host_module
from controller.cli.doctor import look as look_module
from controller.cli.doctor import machine
from controller.cli.doctor.agents import AgentsSeen, query_agents
from controller.cli.doctor.controllers import RunningController, running_controllers
from controller.cli.doctor.host import FileFacts, RealHost, Space, UserFacts
from controller.cli.doctor.loaded_conf import KEYS, loaded_findings
from controller.cli.doctor.look import checks, look, query_policy
from controller.cli.doctor.rules import findings
from controller.cli.doctor.seen import PolicySeen, Seen, SlurmSeen
from controller.cli.doctor.services import WATCHDOG_TIMER
from controller.slurm.client import SlurmFacts
from controller.slurm.configuration import installed_files
from controller.slurm.embedded import ClusterDescription, EmbeddedSlurm
from controller.slurm.model.cluster import SlurmNode, SlurmPartition
from policies.api import PolicySpec
from policies.serving.runtime.finding import Finding, Level
from policies.serving.runtime.version import VERSION
from protos.headway.v1 import admin_pb2
from tests.unit.controller.worlds.measured import measured_world

NOW = 1_700_000_000
SLURM = UserFacts("slurm", 64030, frozenset({64030}))
ETC = Path("/etc/slurm")
CONF_TEXT = """
JobSubmitPlugins=lua
PrologSlurmctld={hook}
EpilogSlurmctld={hook}
SchedulerParameters=batch_sched_delay=0,bf_interval=30
"""
SHIPPED = Path(__file__).parents[5] / "slurm" / "plugin"
LUA, HOOK = SHIPPED / "job_submit.lua", SHIPPED / "hooks" / installed_files.EVENT_HOOK


@dataclass
class FakeHost:
    """A machine in memory."""

    files: dict[Path, FileFacts] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    programs: set[str] = field(default_factory=lambda: {"scontrol", "squeue", "scancel"})
    units: dict[str, bool] | None = field(default_factory=lambda: {WATCHDOG_TIMER: True})
    users: tuple[UserFacts, ...] = (SLURM,)
    lua_errors: dict[str, str] = field(default_factory=dict)
    """Messages of Lua's compiler by a text in the script."""
    full: dict[Path, Space | None] = field(default_factory=dict)
    changed: dict[Path, float] = field(default_factory=dict)
    written: dict[Path, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    others: list[RunningController] = field(default_factory=list)
    asked_uids: frozenset[int] = frozenset()
    links: dict[Path, Path] = field(default_factory=dict)
    interpreted: list[str] = field(default_factory=list)

    def put(self, path: Path, kind: str, mode: int, text: str | None = None) -> None:
        self.files[path] = FileFacts(kind, mode, SLURM.uid, 64030)
        if text is not None:
            self.texts[path] = text

    def file(self, path: Path) -> FileFacts | None:
        return self.files.get(path)

    def text(self, path: Path) -> str | None:
        return self.texts.get(path)

    def names(self, folder: Path) -> list[str]:
        return [path.name for path in self.files if path.parent == folder]

    def space(self, folder: Path) -> Space | None:
        return self.full.get(folder, Space(1 << 40))

    def name(self) -> str:
        return "head.site.org"

    def user(self, name_or_uid: str | int) -> UserFacts | None:
        return next((user for user in self.users if name_or_uid in {user.name, user.uid}), None)

    def program(self, name: str, folder: Path | None) -> Path | None:
        return (folder or Path("/usr/bin")) / name if name in self.programs else None

    def lua_error(self, text: str) -> str | None:
        return next((error for piece, error in self.lua_errors.items() if piece in text), None)

    def unit_active(self, unit: str) -> bool | None:
        return None if self.units is None else self.units.get(unit, False)

    def unit_started_s(self, unit: str) -> float | None:
        return self.started.get(unit)

    def changed_s(self, path: Path) -> float | None:
        return self.changed.get(path)

    def written_s(self, path: Path) -> float | None:
        return self.written.get(path)

    def controllers(self, uids: frozenset[int]) -> list[RunningController]:
        self.asked_uids = uids
        return self.others

    def resolved(self, path: Path) -> Path:
        return self.links.get(path, path)

    def not_compiled(self) -> list[str]:
        return self.interpreted


@dataclass
class Installation:
    """A sound one; tests break it."""

    settings: ControllerSettings
    host: FakeHost
    seen: Seen

    def __init__(self) -> None:
        self.settings = ControllerSettings(partitions=("gpu",), start_grace_s=40)
        self.host = FakeHost()
        hook = ETC / "headway" / installed_files.EVENT_HOOK
        self.host.put(ETC / "job_submit.lua", "file", 0o644, LUA.read_text())
        self.host.put(hook, "file", 0o755, HOOK.read_text())
        self.host.put(self.settings.runtime_dir, "folder", 0o755)
        self.host.put(self.settings.lease_path, "file", 0o644)
        self.host.put(self.settings.wake_path, "pipe", 0o600)
        self.host.put(self.settings.holds_path, "folder", 0o700)
        self.host.put(self.settings.state_dir, "folder", 0o700)
        self.host.put(ETC / "slurm.conf", "file", 0o644, CONF_TEXT.format(hook=hook))
        self.host.put(machine.MUNGE_KEY, "file", 0o400)
        self.host.users = (*self.host.users, UserFacts("munge", 64030, frozenset({64030})))
        config = {
            "SLURM_CONF": str(ETC / "slurm.conf"),
            "StateSaveLocation": "/var/spool/slurmctld",
            "SlurmctldHost[0]": "head(10.0.0.1)",
            "SlurmUser": "slurm(64030)",
            "JobSubmitPlugins": "lua",
            "PrologSlurmctld": str(hook),
            "EpilogSlurmctld": str(hook),
            "SchedulerParameters": "batch_sched_delay=0,bf_interval=30",
        }
        node = SlurmNode("n1", "IDLE", True, 8, "", 64, 256_000, frozenset(), frozenset({"gpu"}), "")
        self.seen = Seen(
            slurm=SlurmSeen(
                facts=SlurmFacts((22, 5, 8), "lab", "command-line", config),
                partitions=(SlurmPartition("gpu", frozenset({"n1"}), True, None),),
                nodes=(node,),
            ),
            policy=PolicySeen(spec=PolicySpec(name="srtf", source="a paper"), healthy=True),
            lease=Lease(NOW, 30, ("gpu",), 64030, 65536),
            now_s=NOW + 1,
            version=VERSION,
            started_s=NOW - 3600,
        )

    def see(self, **changes: Any) -> None:
        self.seen = replace(self.seen, **changes)

    def slurm(self, **changes: Any) -> None:
        assert self.seen.slurm is not None
        self.see(slurm=replace(self.seen.slurm, **changes))

    def config(self, **changes: str) -> None:
        """Change slurm.conf, and have slurmctld load it."""
        assert self.seen.slurm is not None
        assert self.seen.slurm.facts is not None
        facts = self.seen.slurm.facts
        settings = {**facts.settings, **changes}
        self.slurm(facts=replace(facts, settings=settings))
        lines = [f'{key}="{settings[key]}"' for key in KEYS if settings.get(key, "(null)") != "(null)"]
        self.host.texts[ETC / "slurm.conf"] = "\n".join(lines)

    def script(self, path: Path, change: Callable[[str], str]) -> None:
        self.host.texts[path] = change(self.host.texts[path])

    def findings(self) -> list[Finding]:
        return findings(self.settings, self.seen, self.host)

    def wrong(self) -> list[tuple[str, Level]]:
        found = [finding for finding in self.findings() if finding.level is not Level.OK]
        assert all(finding.mend or finding.level is Level.SKIPPED for finding in found), "every fault has its mend"
        return [(finding.check, finding.level) for finding in found]


@pytest.fixture
def house() -> Installation:
    return Installation()


def test_a_sound_installation_has_no_findings_with_a_remedy(house: Installation) -> None:
    assert house.wrong() == []
    assert len(house.findings()) >= 12


def remove(path: Path) -> Callable[[Installation], None]:
    def act(house: Installation) -> None:
        house.host.files.pop(path, None)
        house.host.texts.pop(path, None)

    return act


def mode(path: Path, kind: str, bits: int) -> Callable[[Installation], None]:
    return lambda house: house.host.put(path, kind, bits)


RUN, STATE, SPOOL = Path("/run/headway"), Path("/var/lib/headway"), Path("/var/spool/slurmctld")
HOOK_PATH = ETC / "headway" / installed_files.EVENT_HOOK
OTHER, CODE = Path("/etc/headway/other.toml"), Path(machine.__file__)


def policy_older_than(house: Installation, path: Path, changed_s: float) -> None:
    house.host.started[machine.POLICY_UNIT] = changed_s - 10
    house.host.written[path] = changed_s


def belongs_to_root(house: Installation, path: Path, bits: int) -> None:
    house.host.files[path] = FileFacts("file", bits, 0, 0)


FOREIGN = UserFacts("slurm", 999, frozenset({999}))


@pytest.mark.parametrize(
    ("break_it", "check", "level"),
    [
        (lambda h: h.host.programs.clear(), "slurm-programs", Level.ERROR),
        (lambda h: h.config(JobSubmitPlugins="(null)"), "job-submit-plugins", Level.ERROR),
        (remove(ETC / "job_submit.lua"), "job-submit-lua", Level.ERROR),
        (lambda h: h.script(ETC / "job_submit.lua", lambda _: "-- site\n"), "job-submit-lua", Level.ERROR),
        (
            lambda h: h.script(
                ETC / "job_submit.lua", lambda t: t.replace(f"version {installed_files.VERSION}", "version 0")
            ),
            "job-submit-lua",
            Level.ERROR,
        ),
        (
            lambda h: h.script(ETC / "job_submit.lua", lambda t: t.replace('"/run/headway"', '"/run/other"')),
            "job-submit-lua",
            Level.ERROR,
        ),
        (lambda h: h.host.lua_errors.update(REFUSED="stdin:14: unexpected symbol"), "job-submit-lua", Level.ERROR),
        (mode(ETC / "job_submit.lua", "file", 0o200), "job-submit-lua", Level.ERROR),
        (mode(ETC, "folder", 0o600), "job-submit-lua", Level.ERROR),
        (lambda h: h.config(SchedulerParameters="batch_sched_delay=0,requeue_delay=5"), "requeue-delay", Level.WARNING),
        (lambda h: h.config(SchedulerParameters="batch_sched_delay=0,bf_interval=60"), "bf-interval", Level.WARNING),
        (lambda h: h.config(EpilogSlurmctld="(null)"), "hooks", Level.WARNING),
        (lambda h: h.config(EpilogSlurmctld="/nowhere"), "hooks", Level.ERROR),
        (lambda h: h.config(SchedulerParameters="bf_interval=40"), "batch-sched-delay", Level.WARNING),
        (lambda h: h.slurm(partitions=()), "partitions", Level.ERROR),
        (lambda h: h.slurm(nodes=()), "gpus", Level.ERROR),
        (remove(RUN), "runtime-dir", Level.ERROR),
        (mode(RUN, "folder", 0o777), "runtime-dir", Level.ERROR),
        (remove(RUN / "wake"), "wake-pipe", Level.WARNING),
        (mode(RUN / "wake", "file", 0o600), "wake-pipe", Level.ERROR),
        (mode(RUN / "wake", "pipe", 0o666), "wake-pipe", Level.ERROR),
        (mode(RUN / "wake", "pipe", 0o400), "wake-pipe", Level.WARNING),
        (remove(RUN / "holds"), "holds", Level.WARNING),
        (mode(RUN / "holds", "file", 0o600), "holds", Level.WARNING),
        (mode(RUN / "holds", "folder", 0o500), "holds", Level.WARNING),
        (mode(RUN / "holds", "folder", 0o777), "holds", Level.ERROR),
        (remove(STATE), "state-dir", Level.ERROR),
        (mode(STATE, "folder", 0o755), "state-dir", Level.ERROR),
        (lambda h: h.host.full.update({STATE: Space(5 << 20)}), "state-space", Level.ERROR),
        (lambda h: h.host.full.update({STATE: Space(1 << 40, has_inodes=False)}), "state-space", Level.ERROR),
        (lambda h: h.host.full.update({STATE: Space(100 << 20)}), "state-space", Level.WARNING),
        (mode(STATE, "folder", 0o500), "audit", Level.WARNING),
        (mode(STATE / "audit.jsonl", "pipe", 0o640), "audit", Level.WARNING),
        (mode(STATE / "audit.jsonl", "file", 0o440), "audit", Level.WARNING),
        (mode(STATE / "audit.jsonl", "file", 0o644), "audit", Level.WARNING),
        (mode(STATE / "journal.sqlite.damaged-20260101T000000.000001Z", "file", 0o600), "state-files", Level.WARNING),
        (mode(STATE / "journal.sqlite.schema-3-20260101T000000.000001Z", "file", 0o600), "state-files", Level.WARNING),
        (lambda h: h.see(lease=None), "controller", Level.ERROR),
        (lambda h: h.see(now_s=NOW + 60), "controller", Level.ERROR),
        (lambda h: h.see(lease=Lease(NOW, 30, ("dl",), 64030, 0)), "controller-settings", Level.WARNING),
        (lambda h: h.see(lease=Lease(NOW, 30, ("gpu",), 1000, 0)), "controller-user", Level.ERROR),
        (lambda h: h.see(policy=PolicySeen(problem="unreachable")), "policy", Level.WARNING),
        (lambda h: h.see(policy=replace(h.seen.policy, healthy=False)), "policy", Level.WARNING),
        (lambda h: h.see(policy=PolicySeen(may_look=False)), "policy", Level.SKIPPED),
        (lambda h: h.see(troubles=("task contention failed 3 times in a row",)), "tasks", Level.WARNING),
        (lambda h: h.see(left_out=(("starts", 3),)), "left-out", Level.WARNING),
        (lambda h: belongs_to_root(h, ETC / "job_submit.lua", 0o600), "job-submit-lua", Level.ERROR),
        (lambda h: belongs_to_root(h, HOOK_PATH, 0o744), "script-access", Level.ERROR),
        (mode(machine.MUNGE_KEY, "file", 0o644), "munge-key", Level.ERROR),
        (mode(machine.MUNGE_KEY, "file", 0o440), "munge-key", Level.ERROR),
        (
            lambda h: h.host.files.update({machine.MUNGE_KEY: FileFacts("file", 0o400, 1000, 0)}),
            "munge-key",
            Level.ERROR,
        ),
        (
            lambda h: h.host.others.append(RunningController(7, OTHER, Path("/run/x"), None)),
            "other-controller",
            Level.ERROR,
        ),
        (lambda h: h.see(version="0.0.1"), "controller-version", Level.WARNING),
        (lambda h: h.host.written.update({CODE: NOW}), "controller-version", Level.WARNING),
        (lambda h: policy_older_than(h, CODE, NOW - 4000), "policy-restart", Level.WARNING),
        (lambda h: policy_older_than(h, machine.POLICY_ENV, NOW), "policy-restart", Level.WARNING),
        (lambda h: setattr(h.host, "interpreted", ["simulator.kernel.loop"]), "compiled", Level.WARNING),
        (lambda h: h.host.full.update({RUN: Space(1000)}), "runtime-space", Level.ERROR),
        (lambda h: h.host.full.update({SPOOL: Space(5 << 20)}), "slurm-space", Level.ERROR),
        (lambda h: h.host.full.update({SPOOL: Space(0, answered=False)}), "slurm-space", Level.ERROR),
        (lambda h: h.script(ETC / "slurm.conf", lambda t: t.replace("=lua", "=lua,x")), "slurm-conf", Level.WARNING),
        (lambda h: h.script(ETC / "slurm.conf", lambda t: t.replace("PrologS", "#")), "slurm-conf", Level.WARNING),
        (lambda h: h.script(ETC / "slurm.conf", lambda t: t + "TaskProlog=/x\n"), "slurm-conf", Level.WARNING),
        (lambda h: setattr(h.host, "units", {}), "watchdog", Level.ERROR),
        (lambda h: setattr(h.host, "units", None), "watchdog", Level.SKIPPED),
    ],
)
def test_each_fault_is_found_and_nothing_else_is_blamed(
    house: Installation, break_it: Callable[[Installation], None], check: str, level: Level
) -> None:
    break_it(house)

    assert house.wrong() == [(check, level)]


def test_disks_without_inodes_and_those_that_do_not_answer_have_their_own_remedies(house: Installation) -> None:
    house.host.full = {STATE: Space(1 << 40, has_inodes=False), SPOOL: Space(0, answered=False), RUN: Space(4096)}

    found = {finding.check: (finding.what.partition(": ")[0], finding.mend) for finding in house.findings()}

    assert "has no free inodes" in found["state-space"][0]
    assert "df -i /var/lib/headway" in found["state-space"][1]
    assert found["slurm-space"][0].endswith("does not answer in time")
    assert "findmnt -T /var/spool/slurmctld" in found["slurm-space"][1]
    assert found["runtime-space"][0] == "/run/headway has 4 KiB free"


def test_the_disk_of_slurmctld_is_not_judged_on_another_machine(house: Installation) -> None:
    house.host.full = {SPOOL: Space(0)}
    house.settings = house.settings.model_copy(update={"stand_by": True})
    house.config(**{"SlurmctldHost[0]": "ctl1(10.0.0.2)", "SlurmctldHost[1]": "ctl2"})
    assert house.wrong() == [("slurm-space", Level.SKIPPED)]

    house.config(**{"SlurmctldHost[1]": "head"})
    assert house.wrong() == [("slurm-space", Level.ERROR)]


def test_a_backup_slurmctld_without_a_controller_is_a_warning(house: Installation) -> None:
    house.config(**{"SlurmctldHost[1]": "ctl2"})

    assert house.wrong() == [("backup-slurmctld", Level.WARNING)]


def test_a_controller_that_stands_by_is_in_order(house: Installation) -> None:
    house.seen = replace(house.seen, lease=None, standby="ctl1")
    for path in (house.settings.wake_path, house.settings.holds_path):  # a controller makes them when it begins to work
        del house.host.files[path]

    assert house.wrong() == []
    assert any("stands by, because the slurmctld of ctl1 is active" in finding.what for finding in house.findings())


def test_a_disk_that_does_not_answer_is_left_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()
    monkeypatch.setattr(host_module, "_DISK_TIMEOUT_S", 0.05)
    assert RealHost().space(tmp_path / "none") is None

    def hang(_path: Path) -> os.statvfs_result:
        ended.wait(30)
        raise OSError("stale file handle")

    monkeypatch.setattr(os, "statvfs", hang)

    assert RealHost().space(tmp_path) == Space(0, answered=False)
    ended.set()


def test_a_start_a_few_seconds_before_the_installation_is_no_old_program(house: Installation) -> None:
    house.host.written[CODE] = house.seen.started_s + 3
    house.host.changed[CODE] = NOW  # a chmod changes no program
    assert house.wrong() == []


def test_the_start_of_the_controller_is_counted_from_its_answer(
    house: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm may take long to answer, and so may the controller."""
    monkeypatch.setattr(
        look_module, "query_controller", lambda _: (admin_pb2.Status(version="1", uptime_s=60), NOW + 25.0)
    )

    seen = asyncio.run(look(house.settings, None, policy_that_serves, NOW))

    assert seen.started_s == NOW - 35


def test_what_the_controller_left_out_is_reported_with_where_to_look(
    house: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = admin_pb2.Status(version=VERSION, left_out=[admin_pb2.LeftOut(part="starts", errors=2)])
    monkeypatch.setattr(look_module, "query_controller", lambda _: (status, NOW + 1.0))

    seen = asyncio.run(look(house.settings, None, policy_that_serves, NOW))
    house.see(left_out=seen.left_out)

    (finding,) = [finding for finding in house.findings() if finding.check == "left-out"]
    assert finding.what.endswith("2 unexpected errors, each of which left out a job, node or row: starts (2)")
    assert "grep left_out" in finding.mend


def test_controllers_of_other_clusters_and_with_the_same_folders_are_no_fault(house: Installation) -> None:
    house.host.others = [
        RunningController(7, OTHER, Path("/run/x"), Path("/etc/other/slurm.conf")),
        RunningController(8, OTHER, house.settings.runtime_dir, None),
        RunningController(9, OTHER, Path("/var/run/headway"), None),
    ]
    house.host.links[Path("/var/run/headway")] = house.settings.runtime_dir

    assert house.wrong() == []
    assert house.host.asked_uids == {0, SLURM.uid}


def test_a_controller_of_the_same_slurm_conf_by_another_name_is_found(house: Installation) -> None:
    house.host.others = [
        RunningController(7, OTHER, Path("/run/x"), ETC / "slurm.conf"),
        RunningController(8, OTHER, Path("/run/x"), Path("/etc/slurm-llnl/slurm.conf")),
    ]
    house.host.links[Path("/etc/slurm-llnl/slurm.conf")] = ETC / "slurm.conf"

    assert house.wrong() == [("other-controller", Level.ERROR)] * 2


def test_a_line_that_slurmctld_has_not_loaded_is_shown_with_what_it_runs_with(house: Installation) -> None:
    house.script(ETC / "slurm.conf", lambda text: text.replace("JobSubmitPlugins=lua\n", "# JobSubmitPlugins=lua\n"))
    house.script(ETC / "slurm.conf", lambda text: text.replace("EpilogSlurmctld=", "EpilogSlurmctld=/x"))

    found = [finding for finding in house.findings() if finding.check == "slurm-conf"]

    assert [finding.what for finding in found] == [
        "/etc/slurm/slurm.conf has no JobSubmitPlugins, but slurmctld runs with JobSubmitPlugins=lua",
        f"/etc/slurm/slurm.conf has EpilogSlurmctld=/x{HOOK_PATH}, but slurmctld runs with EpilogSlurmctld={HOOK_PATH}",
    ]
    assert [finding.mend for finding in found] == [
        "scontrol reconfigure",
        "restart slurmctld, which reads this key only when it starts",
    ]


@pytest.mark.parametrize("loaded", ["/b.sh", "/hook.sh"])
def test_all_programs_of_a_setting_are_compared_where_slurm_runs_them_all(house: Installation, loaded: str) -> None:
    assert house.seen.slurm is not None
    facts = house.seen.slurm.facts
    assert facts is not None
    house.host.texts[ETC / "slurm.conf"] = "PrologSlurmctld=/hook.sh\nPrologSlurmctld=/b.sh\n"

    found = list(loaded_findings(replace(facts, settings={**PLAIN, "PrologSlurmctld[0]": loaded}), house.host))

    assert [finding.what for finding in found] == [
        f"/etc/slurm/slurm.conf has PrologSlurmctld=/hook.sh,/b.sh, but slurmctld runs with PrologSlurmctld={loaded}"
    ]
    both = {"PrologSlurmctld[1]": "/b.sh", "PrologSlurmctld[0]": "/hook.sh"}
    for running in (both, {"PrologSlurmctld": "/b.sh"}):  # before 24.11, Slurm runs the last one
        (found_ok,) = loaded_findings(replace(facts, settings=PLAIN | running), house.host)
        assert found_ok.level is Level.OK


PLAIN = {"SLURM_CONF": str(ETC / "slurm.conf")}


@pytest.mark.parametrize("line", ['PrologSlurmctld=""', "PrologSlurmctld=/x\nPrologSlurmctld=(null)"])
def test_an_empty_value_is_no_program(house: Installation, line: str) -> None:
    assert house.seen.slurm is not None
    facts = house.seen.slurm.facts
    assert facts is not None
    house.host.texts[ETC / "slurm.conf"] = f"{line}\n"

    (finding,) = loaded_findings(replace(facts, settings={**PLAIN, "PrologSlurmctld": "(null)"}), house.host)

    assert finding.level is Level.OK


@pytest.mark.parametrize(
    ("boot_time", "changed_s", "word"),
    [
        ("2026-01-02T03:04:05", 1.0, "has loaded"),
        ("2026-01-02T03:04:05", 4e9, "lists"),
        ("2026-01-02T03:04:05", None, "lists"),
        ("3 days ago", 1.0, "lists"),
        ("", 1.0, "lists"),
    ],
)
def test_hooks_that_are_listed_run_only_after_a_restart(
    house: Installation, boot_time: str, changed_s: float | None, word: str
) -> None:
    house.host.changed = {} if changed_s is None else {ETC / "slurm.conf": changed_s}
    house.config(BOOT_TIME=boot_time)

    (finding,) = (each for each in house.findings() if each.check == "slurm-conf")

    assert (finding.level, finding.what.split("slurmctld ")[1].startswith(word)) == (Level.OK, True)


def test_a_slurm_conf_that_cannot_be_read_is_not_compared(house: Installation) -> None:
    house.host.files.pop(ETC / "slurm.conf")
    house.host.texts.pop(ETC / "slurm.conf")

    assert "slurm-conf" not in {finding.check for finding in house.findings()}


def test_running_controllers_are_found_by_their_command_lines(tmp_path: Path) -> None:
    (tmp_path / "controller.toml").write_text('partitions = ["gpu"]\nruntime_dir = "/run/x"\n')
    config = tmp_path / "controller.toml"
    lines = {
        "10": ["/opt/headway/bin/python3", "/opt/headway/bin/headway-controller", "run", "--config", str(config)],
        "11": ["headway-controller", "run", "-c", "controller.toml"],
        "12": ["headway-controller", "run", f"--config={config}"],
        "13": ["headway-controller", "watchdog", "--config", str(config)],
        "14": ["vim", str(config)],
        "15": ["headway-controller", "run", "--config", "/nowhere.toml"],
        "17": ["headway-controller", "run", "-ccontroller.toml"],
        "18": ["headway-controller", "run", "-c", "controller.toml"],
        "19": ["headway-controller", "run", "-c", "controller.toml"],
        "20": ["headway-controller", "run", "-c", "embedded.toml"],
    }
    root_slurm = "0\t64030"
    uids = {"18": "1000\t1000", "19": "1000\t0"}  # a user's process, and a setuid program that a user started
    embedded = (tmp_path / "controller.toml").read_text() + 'slurm_client = "embedded"\n'
    (tmp_path / "embedded.toml").write_text(embedded)
    for pid, words in lines.items():
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (tmp_path / "proc" / pid / "cwd").symlink_to(tmp_path)
        (tmp_path / "proc" / pid / "status").write_text(f"Name:\tx\nUid:\t{uids.get(pid, root_slurm)}\t0\t0\n")
    (tmp_path / "proc" / "16").mkdir()
    (tmp_path / "proc" / "version").write_text("Linux")

    found = sorted(running_controllers(tmp_path / "proc", frozenset({0, 64030})), key=lambda each: each.pid)

    assert [(each.pid, each.runtime_dir) for each in found] == [(pid, Path("/run/x")) for pid in (10, 11, 12, 17)]


def test_a_hook_that_is_not_ours_is_a_warning_unless_it_calls_ours(house: Installation) -> None:
    site = Path("/opt/site.sh")
    house.config(PrologSlurmctld=str(site))
    for other in ("true", f"# {HOOK_PATH}", f"  #{HOOK_PATH} ends at once\ntrue"):
        house.host.put(site, "file", 0o755, f"#!/bin/sh\n{other}\n")
        assert house.wrong() == [("hooks", Level.WARNING)]

    for call in (HOOK_PATH, f'"$ETC/headway/{installed_files.EVENT_HOOK}"  # Headway'):
        house.host.put(site, "file", 0o755, f"#!/bin/sh\n{call}\n")
        assert house.wrong() == []


def test_hooks_that_slurm_shows_with_numbers(house: Installation) -> None:
    """Since Slurm 24.11 there may be several."""
    assert house.seen.slurm is not None
    facts = house.seen.slurm.facts
    assert facts is not None
    settings = {key: value for key, value in facts.settings.items() if key not in installed_files.EVENT_KEYS}
    house.slurm(facts=replace(facts, settings=settings))
    not_loaded = [("slurm-conf", Level.WARNING)] * 2
    assert house.wrong() == [("hooks", Level.WARNING)] * 2 + not_loaded

    house.host.put(Path("/opt/site.sh"), "file", 0o755, "#!/bin/sh\ntrue\n")
    site_first = "".join(f"{key}=/opt/site.sh\n" for key in installed_files.EVENT_KEYS)
    house.script(ETC / "slurm.conf", lambda text: site_first + text)
    ours = {f"{key}[1]": str(HOOK_PATH) for key in installed_files.EVENT_KEYS}
    theirs = {f"{key}[0]": "/opt/site.sh" for key in installed_files.EVENT_KEYS}
    house.slurm(facts=replace(facts, settings=settings | theirs | ours))
    assert house.wrong() == []

    house.slurm(facts=replace(facts, settings=settings | theirs))
    assert house.wrong() == [("hooks", Level.WARNING)] * 2 + not_loaded


def test_cgroups_that_are_named_by_sluid(house: Installation) -> None:
    house.settings = house.settings.model_copy(update={"agents_address": "0.0.0.0:9342"})
    assert house.seen.slurm is not None
    facts = house.seen.slurm.facts
    assert facts is not None
    for version, told in (((25, 11, 7), False), ((26, 5, 5), True)):
        house.slurm(facts=replace(facts, version=version))
        found = [finding for finding in house.findings() if finding.check == "cgroup-paths"]
        assert [finding.level for finding in found] == [Level.OK] * told
    house.config(CgroupJobIdPaths="yes")
    assert not [finding for finding in house.findings() if finding.check == "cgroup-paths"]


def test_the_default_bf_interval_of_slurm_counts(house: Installation) -> None:
    house.config(SchedulerParameters="batch_sched_delay=0")
    assert house.wrong() == []
    house.settings = house.settings.model_copy(update={"start_grace_s": 10.0})
    assert house.wrong() == [("bf-interval", Level.WARNING)]
    house.config(SchedulerType="sched/builtin")
    assert house.wrong() == []


@pytest.mark.parametrize(
    ("parameters", "check"),
    [
        ("bf_interval=-1", "bf-interval"),
        ("bf_interval = 20", "bf-interval"),
        ("bf_interval=", "bf-interval"),
        ("bf_interval=20,requeue_delay=soon", "requeue-delay"),
        ("bf_interval=60,bf_interval=20", "bf-interval"),  # Slurm takes the first
    ],
)
def test_a_value_that_is_not_understood_is_not_taken_for_the_default(
    house: Installation, parameters: str, check: str
) -> None:
    house.config(SchedulerParameters="batch_sched_delay=0,bf_interval= 20")
    assert house.wrong() == []
    house.config(SchedulerParameters=f"batch_sched_delay=0,{parameters}")
    assert house.wrong() == [(check, Level.WARNING)]


@pytest.mark.parametrize(
    ("parameters", "what", "mend"),
    [
        ("bf_interval=30", "lacks batch_sched_delay=0", "headway-setup slurm --apply, then scontrol reconfigure"),
        ("batch_sched_delay=1,bf_interval=30", "has batch_sched_delay=1", "set it to 0 in slurm.conf by hand"),
        (
            "batch_sched_delay=5,batch_sched_delay=0,bf_interval=30",
            "has batch_sched_delay=5",
            "set it to 0 in slurm.conf by hand",
        ),
    ],
)
def test_the_mend_of_a_scheduling_delay_is_one_that_changes_it(
    house: Installation, parameters: str, what: str, mend: str
) -> None:
    """headway-setup adds the parameter, and leaves a value of the site as it is."""
    house.config(SchedulerParameters=parameters)

    (finding,) = [finding for finding in house.findings() if finding.level is not Level.OK]
    assert (finding.check, finding.level) == ("batch-sched-delay", Level.WARNING)
    assert what in finding.what
    assert finding.mend.startswith(mend)


def test_a_site_script_that_loads_ours_is_searched(house: Installation) -> None:
    house.host.texts[ETC / "job_submit.lua"] = '-- site\ndofile("/etc/slurm/headway.lua")\n'
    assert house.wrong() == [("job-submit-lua", Level.ERROR)]

    house.host.texts[ETC / "headway.lua"] = LUA.read_text()
    assert house.wrong() == []

    for text in (
        'return slurm.SUCCESS\ndofile("/etc/slurm/headway.lua")\n',
        'dofile("/etc/slurm/headway.lua")\nfunction slurm_job_modify() end\n',
    ):
        house.host.texts[ETC / "job_submit.lua"] = text
        (finding,) = [finding for finding in house.findings() if finding.level is not Level.OK]
        assert (finding.check, finding.level) == ("job-submit-lua", Level.ERROR)
        assert "move that line: the script needs it as its last line, but before a final `return`" in finding.mend


def test_a_new_script_beside_the_sites_own_that_slurmctld_may_not_have_loaded(house: Installation) -> None:
    own, chained = ETC / "job_submit.lua", ETC / "headway.lua"
    house.host.texts |= {own: 'dofile("/etc/slurm/headway.lua")\n', chained: LUA.read_text()}
    house.host.written = {own: NOW - 500.0, chained: NOW - 400.0}
    (finding,) = [finding for finding in house.findings() if finding.level is not Level.OK]
    assert (finding.check, finding.level, finding.mend) == ("job-submit-lua", Level.WARNING, f"touch {own}")

    house.host.written[own] = NOW - 300.0
    assert house.wrong() == []
    house.host.written[own] = NOW - 500.0
    house.config(BOOT_TIME=time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(NOW - 100)))
    assert house.wrong() == []


def test_units_that_were_copied_by_hand_hide_those_of_a_package(house: Installation) -> None:
    copied, packaged = (
        folder / "headway-controller.service" for folder in (machine.COPIED_UNITS, machine.PACKAGED_UNITS)
    )
    house.host.put(copied, "file", 0o644)
    assert house.wrong() == [], "without a package there is nothing to hide"

    house.host.put(packaged, "file", 0o644)
    (finding,) = [finding for finding in house.findings() if finding.level is not Level.OK]
    assert (finding.check, finding.level) == ("units", Level.WARNING)
    assert f"rm {copied}; systemctl daemon-reload" in finding.mend

    house.host.links[copied] = packaged  # `systemctl link`
    assert house.wrong() == []
    house.host.put(copied, "other", 0o666)  # `systemctl mask`
    house.host.links[copied] = Path("/dev/null")
    assert house.wrong() == []


def test_copied_units_of_another_version(house: Installation) -> None:
    name = "headway-controller.service"
    shipped, copied = machine.SHIPPED_UNITS / name, machine.COPIED_UNITS / name
    house.host.put(shipped, "file", 0o644, "ExecStart=/opt/headway/bin/headway-controller run\n")
    assert house.wrong() == [], "not copied, as on a machine without systemd"

    for text in (house.host.texts[shipped], f"ExecStart={sys.prefix}/bin/headway-controller run\n"):
        house.host.put(copied, "file", 0o644, text)
        assert house.wrong() == []

    house.host.put(copied, "file", 0o644, "ExecStart=/opt/headway/bin/headway-controller\n")
    (finding,) = [finding for finding in house.findings() if finding.level is not Level.OK]
    assert (finding.check, finding.level) == ("units", Level.WARNING)
    assert f"cp {shipped} {machine.COPIED_UNITS}/; systemctl daemon-reload" in finding.mend


def test_a_task_prolog_of_headways_is_checked_where_this_machine_sees_it(house: Installation) -> None:
    path, side = Path("/shared/task_prolog.sh"), Path(sys.prefix) / "src"
    house.config(TaskProlog=str(path))
    assert house.wrong() == []
    house.host.texts[path] = "#!/bin/sh\n# the site's own\n"
    assert house.wrong() == []

    text = (SHIPPED / "hooks" / installed_files.TASK_PROLOG).read_text()
    house.host.texts[path] = installed_files.with_job_side(text, side, None)
    assert house.wrong() == [("hooks", Level.WARNING)], "the environment of Headway has lost this folder"
    house.host.put(side / "headway_job" / "__init__.py", "file", 0o644)
    assert house.wrong() == []
    house.host.texts[path] = installed_files.with_job_side(text, Path("/nodes/only"), None)
    assert house.wrong() == [("hooks", Level.SKIPPED)]

    house.host.texts[path] = text.replace(f"version {installed_files.VERSION}", "version 9")
    assert house.wrong() == [("hooks", Level.ERROR)]


def test_a_slurmctld_that_runs_as_a_user_who_cannot_enter(house: Installation) -> None:
    house.host.users = (FOREIGN,)
    house.host.put(RUN, "folder", 0o700)

    checks = dict(house.wrong())
    assert checks["lease-access"] is Level.ERROR
    assert checks["wake-pipe"] is Level.WARNING


def test_a_slurm_user_that_this_machine_does_not_know(house: Installation) -> None:
    house.host.users = ()

    assert house.wrong() == [("slurm-user", Level.SKIPPED), ("controller-user", Level.SKIPPED)]


def test_old_slurm(house: Installation) -> None:
    assert house.seen.slurm is not None
    assert house.seen.slurm.facts is not None
    house.slurm(facts=replace(house.seen.slurm.facts, version=(21, 8, 8)))

    (finding,) = [finding for finding in house.findings() if finding.check == "slurm-version"]
    assert finding.what == "Slurm 21.08.8 is older than 22.05"


@pytest.mark.parametrize(
    ("jobs", "warned"), [("10000", False), ("150000", False), ("1000000", True), ("9" * 5000, False)]
)
def test_a_queue_that_could_not_be_read(house: Installation, jobs: str, warned: bool) -> None:
    assert house.seen.slurm is not None
    facts = house.seen.slurm.facts
    assert facts is not None
    house.slurm(facts=replace(facts, settings={**facts.settings, "MaxJobCount": jobs}))

    assert house.wrong() == ([("max-job-count", Level.WARNING)] if warned else [])


def test_without_slurmctld_the_rest_is_still_checked(house: Installation) -> None:
    house.see(slurm=SlurmSeen(problem="scontrol: no answer in 10 s"))

    assert house.wrong() == [
        ("slurmctld", Level.ERROR),
        ("slurm-user", Level.SKIPPED),
        ("controller-user", Level.SKIPPED),
    ]


def test_an_embedded_slurm_is_no_installation(house: Installation) -> None:
    house.see(slurm=None)

    assert house.wrong() == [("slurm", Level.SKIPPED)]


# --- looking


async def policy_that_serves(address: str) -> PolicySeen:
    return PolicySeen(spec=PolicySpec(name="srtf", source=""), healthy=True)


async def test_slurm_and_policy_are_queried(house: Installation, tmp_path: Path) -> None:
    settings = house.settings.model_copy(update={"runtime_dir": tmp_path})
    slurm = EmbeddedSlurm(ClusterDescription(), VirtualClock())

    seen = await slurm.clock.run(look(settings, slurm.client, policy_that_serves, NOW))  # type: ignore[attr-defined]

    assert seen.lease is None
    assert seen.policy.healthy
    assert seen.slurm is not None
    assert seen.slurm.facts is not None
    assert seen.slurm.nodes


async def test_a_slurmctld_that_does_not_answer_is_a_finding_and_no_error(house: Installation) -> None:
    slurm = EmbeddedSlurm(ClusterDescription(), VirtualClock())

    with slurm.faults.unavailable():
        seen = await slurm.clock.run(look(house.settings, slurm.client, policy_that_serves, NOW))  # type: ignore[attr-defined]

    assert seen.slurm is not None
    assert seen.slurm.problem


async def test_without_a_client_slurm_is_not_queried(house: Installation) -> None:
    assert (await look(house.settings, None, policy_that_serves, NOW)).slurm is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as another user")
async def test_a_user_who_may_not_open_the_socket_gets_no_finding_about_the_policy() -> None:
    with TemporaryDirectory(prefix="hw-") as name, socket.socket(socket.AF_UNIX) as listener:
        path = Path(name) / "policy.sock"
        listener.bind(str(path))
        listener.listen()
        Path(name).chmod(0o750)
        os.seteuid(65534)
        try:
            seen = await query_policy(f"unix://{path}")
        finally:
            os.seteuid(0)
    assert seen == PolicySeen(may_look=False)


def test_a_policy_server_that_was_not_checked_is_no_claim_about_the_fallback(house: Installation) -> None:
    house.see(policy=PolicySeen(may_look=False))
    (finding,) = (found for found in house.findings() if found.check == "policy")
    assert "the policy server was not checked" in finding.what
    assert "decides" not in finding.what


def test_an_unknown_policy_user_is_a_finding(house: Installation) -> None:
    settings = house.settings.model_copy(update={"policy_users": ("no-such-user",)})
    (finding,) = checks(settings)
    assert finding.level is Level.ERROR
    assert "no-such-user" in finding.what


# --- the machine


@pytest.mark.parametrize(
    ("user", "bits", "allowed"),
    [
        (UserFacts("root", 0, frozenset({0})), 7, True),
        (UserFacts("owner", 5, frozenset({5})), 6, True),
        (UserFacts("owner", 5, frozenset({5})), 1, False),
        (UserFacts("member", 6, frozenset({7})), 4, True),
        (UserFacts("member", 6, frozenset({7})), 2, False),
        (UserFacts("other", 8, frozenset({8})), 4, False),
    ],
)
def test_the_rights_of_each_user(user: UserFacts, bits: int, allowed: bool) -> None:
    assert FileFacts("file", 0o640, uid=5, gid=7).lets(user, bits) is allowed


def test_the_real_machine(tmp_path: Path) -> None:
    host = RealHost()
    (tmp_path / "x").write_text("hello")
    (tmp_path / "x").chmod(0o600)

    found = host.file(tmp_path / "x")
    assert found is not None
    assert (found.kind, found.mode, host.text(tmp_path / "x")) == ("file", 0o600, "hello")
    assert (host.file(tmp_path / "y"), host.text(tmp_path)) == (None, None)
    root = host.user(0)
    assert root is not None
    assert (root.name, host.user("root")) == ("root", root)
    assert host.user("no-such-user-here") is None
    assert host.program("sh", None) is not None
    assert host.program("sh", tmp_path) is None


# --- node agents


def agents(agents_seen: AgentsSeen) -> list[tuple[str, Level, str]]:
    installation = Installation()
    installation.see(agents=agents_seen)
    found = [finding for finding in installation.findings() if finding.check.startswith("agents")]
    assert all(finding.mend or finding.level in {Level.OK, Level.SKIPPED} for finding in found)
    return [(finding.check, finding.level, finding.what) for finding in found]


def test_without_agents_there_are_no_findings_about_them() -> None:
    assert not [finding for finding in Installation().findings() if finding.check.startswith("agents")]


def test_nodes_without_an_agent_are_named() -> None:
    assert agents(AgentsSeen(nodes=2)) == [("agents", Level.OK, "agents of all 2 nodes are connected")]
    silent = tuple((f"n{at}", NOW - 59.0 if at == 1 else 0.0) for at in range(1, 12))
    ((check, level, what),) = agents(AgentsSeen(silent=silent, nodes=20))
    assert (check, level) == ("agents", Level.WARNING)
    assert what.startswith("11 nodes of 20 have no agent: n1 (for 60 s), n2 (never connected), ")
    assert what.endswith("n8 (never connected) and 3 more; nothing is measured there")


def test_clocks_that_differ_are_named_with_the_difference_that_matters() -> None:
    ok, clocks = agents(AgentsSeen(skewed=(("n1", 3.0), ("n2", -2.5)), nodes=2))
    assert ok[1] is Level.OK
    assert clocks == ("agents-clocks", Level.WARNING, "clocks differ from this machine's: n1 -3.0 s, n2 +2.5 s")
    assert agents(AgentsSeen(skewed=(("n1", 40.0),), nodes=1))[1][2].endswith(
        "agents whose clock differs by 60 s are refused"
    )


def test_a_machine_without_munge_and_a_controller_that_serves_no_agents() -> None:
    broken, unknown = agents(AgentsSeen(munge="MUNGE: no socket", problem="no controller answers"))
    assert (broken[0], broken[1]) == ("agents-munge", Level.ERROR)
    assert unknown[1] is Level.SKIPPED
    assert agents(AgentsSeen(served=False))[0][1] is Level.ERROR


async def test_the_controller_is_queried_for_its_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await query_agents(ControllerSettings(partitions=("gpu",))) is None
    settings = ControllerSettings(
        partitions=("gpu",), runtime_dir=tmp_path, agents_address=f"unix://{tmp_path}/agents.sock"
    )
    nobody = await query_agents(settings)
    assert nobody is not None
    assert "no controller answers" in nobody.problem
    with TemporaryDirectory(prefix="hw-") as short:
        async with measured_world(Path(short), monkeypatch) as (world, _):
            agents_seen = await query_agents(world.settings)
    assert agents_seen == AgentsSeen(silent=(("n3", 0.0), ("n4", 0.0)), nodes=4)


async def test_munge_is_tested_where_it_is_needed(tmp_path: Path) -> None:
    settings = ControllerSettings(
        partitions=("gpu",), runtime_dir=tmp_path, agents_address="0.0.0.0:9342", munge_socket=tmp_path / "none"
    )
    agents_seen = await query_agents(settings)
    assert agents_seen is not None
    assert "MUNGE" in agents_seen.munge
