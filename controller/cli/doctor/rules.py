"""Conclusions of `headway doctor`: pure functions of the settings, of what was observed, and of the machine's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.lease import Lease, is_stale
from controller.cli.doctor.agents import AgentsSeen, agent_findings
from controller.cli.doctor.finding import Finding, Level
from controller.cli.doctor.journal import journal_findings
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import list_items

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import FileFacts, Host, UserFacts
    from controller.slurm.client import SlurmFacts, SlurmNode, SlurmPartition
    from policies.api import PolicySpec

__all__ = ["AgentsSeen", "Finding", "Level", "PolicySeen", "Seen", "SlurmSeen", "findings"]

OLDEST_SLURM = (22, 5)
PROGRAMS = ("scontrol", "squeue", "scancel")
WATCHDOG_TIMER = "headway-watchdog.timer"
_SETUP = "headway-setup slurm --apply"


@dataclass(frozen=True, slots=True)
class SlurmSeen:
    """Answers of slurmctld, or the reason why it gave none."""

    facts: SlurmFacts | None = None
    partitions: tuple[SlurmPartition, ...] = ()
    nodes: tuple[SlurmNode, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PolicySeen:
    """Answer of the policy server, or the reason why it gave none."""

    spec: PolicySpec | None = None
    healthy: bool = False
    problem: str = ""
    may_look: bool = True
    """False: this user may not open the server's socket, which says nothing about the server."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was observed. `slurm` is None for the embedded Slurm, of which nothing is installed."""

    slurm: SlurmSeen | None
    policy: PolicySeen
    lease: Lease | None
    now_s: float
    agents: AgentsSeen | None = None
    """None: the settings ask for no agents."""
    troubles: tuple[str, ...] = ()
    """Background tasks of the controller that failed recently, in its own words."""


def findings(settings: ControllerSettings, seen: Seen, host: Host) -> list[Finding]:
    """Return all findings, in the order in which to repair them."""
    facts = seen.slurm.facts if seen.slurm else None
    slurm_user = _slurm_user(facts, host)
    return [
        *_programs(settings, seen, host),
        *_slurmctld(seen),
        *(_installed(settings, facts, host) if facts else ()),
        *(_resources(settings, seen.slurm) if seen.slurm and facts else ()),
        *_folders(settings, host, slurm_user, seen.slurm is None),
        *journal_findings(settings, host),
        *_controller(settings, seen, slurm_user),
        *_tasks(seen.troubles),
        *_policy(settings, seen.policy),
        *_watchdog(seen, host),
        *(agent_findings(seen.agents, seen.now_s) if seen.agents else ()),
    ]


def _slurm_user(facts: SlurmFacts | None, host: Host) -> UserFacts | None:
    """Return SlurmUser, which `scontrol show config` prints as "slurm(64030)"."""
    found = re.fullmatch(r"(.+)\((\d+)\)", facts.settings.get("SlurmUser", "")) if facts else None
    return host.user(found[1]) or host.user(int(found[2])) if found else None


# --- Slurm


def _programs(settings: ControllerSettings, seen: Seen, host: Host) -> Iterator[Finding]:
    if seen.slurm is None:
        yield Finding("slurm", Level.SKIPPED, "slurm_client is embedded: there is no Slurm installation to look at")
        return
    missing = [name for name in PROGRAMS if host.program(name, settings.slurm_bin) is None]
    where = str(settings.slurm_bin or "PATH")
    if missing:
        yield Finding(
            "slurm-programs",
            Level.ERROR,
            f"not found in {where}: {', '.join(missing)}",
            "install Slurm's client programs (Debian: slurm-client), or set slurm_bin in controller.toml",
        )
    else:
        yield Finding("slurm-programs", Level.OK, f"Slurm's programs are in {where}")


def _slurmctld(seen: Seen) -> Iterator[Finding]:
    if seen.slurm is None:
        return
    if seen.slurm.facts is None:
        yield Finding(
            "slurmctld",
            Level.ERROR,
            f"slurmctld does not answer: {seen.slurm.problem}",
            "see `scontrol ping`, slurmctld's log, munge, and slurm_conf in controller.toml",
        )
        return
    facts = seen.slurm.facts
    version = ".".join(f"{part:02}" if place == 1 else str(part) for place, part in enumerate(facts.version))
    if facts.version[:2] < OLDEST_SLURM:
        mend = "upgrade Slurm to 22.05 or later"
        yield Finding("slurm-version", Level.ERROR, f"Slurm {version} is older than 22.05", mend)
    else:
        yield Finding("slurmctld", Level.OK, f"slurmctld of cluster {facts.cluster_name} answers: Slurm {version}")


def _installed(settings: ControllerSettings, facts: SlurmFacts, host: Host) -> Iterator[Finding]:
    folder = Path(facts.settings.get("SLURM_CONF", settings.slurm_conf or "/etc/slurm/slurm.conf")).parent
    yield _submit_plugin(facts)
    yield _lua(settings, folder, host)
    for key in installed_files.EVENT_KEYS:
        yield _event_hook(settings, key, facts.settings.get(key, ""), host)
    parameters = list_items(facts.settings.get("SchedulerParameters", ""))
    if "batch_sched_delay=0" in parameters:
        yield Finding("batch-sched-delay", Level.OK, "SchedulerParameters has batch_sched_delay=0")
    else:
        yield Finding(
            "batch-sched-delay",
            Level.WARNING,
            "SchedulerParameters lacks batch_sched_delay=0: a placed job takes up to 3 s to start",
            f"{_SETUP}, then scontrol reconfigure",
        )


def _submit_plugin(facts: SlurmFacts) -> Finding:
    plugins = [item.removeprefix("job_submit/") for item in list_items(facts.settings.get("JobSubmitPlugins", ""))]
    if "lua" in plugins:
        return Finding("job-submit-plugins", Level.OK, "JobSubmitPlugins has lua")
    return Finding(
        "job-submit-plugins",
        Level.ERROR,
        "slurm.conf: JobSubmitPlugins does not contain lua, so Slurm starts new jobs before Headway can place them",
        f"{_SETUP}, then scontrol reconfigure",
    )


def _lua(settings: ControllerSettings, folder: Path, host: Host) -> Finding:
    path = folder / installed_files.LUA_NAME
    text = host.text(path)
    if text is not None and installed_files.script_version(text) is None and installed_files.loads_ours(text):
        path = folder / installed_files.CHAINED_LUA_NAME
        text = host.text(path)
    if text is None:
        return Finding("job-submit-lua", Level.ERROR, f"{path}: not there, or not readable", f"run {_SETUP} as root")
    if installed_files.script_version(text) is None:
        mend = (
            f'{_SETUP}, and add to that script as its last line: dofile("{folder / installed_files.CHAINED_LUA_NAME}")'
        )
        return Finding("job-submit-lua", Level.ERROR, f"{path} is the site's own, and does not load Headway's", mend)
    problem = _script_problem(settings, path, text)
    return problem or Finding("job-submit-lua", Level.OK, f"{path} is Headway's, version {installed_files.VERSION}")


def _script_problem(settings: ControllerSettings, path: Path, text: str) -> Finding | None:
    check = "job-submit-lua" if path.suffix == ".lua" else "hooks"
    version, runtime_dir = installed_files.script_version(text), installed_files.runtime_dir_of(text)
    mend = f"{_SETUP} --runtime-dir {settings.runtime_dir}"
    if version != installed_files.VERSION:
        what = f"{path} has version {version}, this Headway needs {installed_files.VERSION}"
        return Finding(check, Level.ERROR, what, mend)
    if runtime_dir != settings.runtime_dir:
        what = f"{path} looks for the controller in {runtime_dir}, but its settings say {settings.runtime_dir}"
        return Finding(check, Level.ERROR, what, mend)
    return None


def _event_hook(settings: ControllerSettings, key: str, program: str, host: Host) -> Finding:
    late = "the controller notices starts and ends only at its next poll"
    if program in {"", "(null)"}:
        return Finding("hooks", Level.WARNING, f"{key} is not set: {late}", f"{_SETUP}, then restart slurmctld")
    path = Path(program)
    found = host.file(path)
    if found is None or found.kind != "file" or not found.mode & 0o111:
        mend = f"{_SETUP}, or correct {key} in slurm.conf"
        return Finding("hooks", Level.ERROR, f"{key}: {program} is no program that can be run here", mend)
    text = host.text(path) or ""
    if installed_files.script_version(text) is None:
        if installed_files.EVENT_HOOK in text:
            return Finding("hooks", Level.OK, f"{key}: {program} is the site's own and calls Headway's")
        mend = f"call {installed_files.EVENT_HOOK} from it; `headway-setup slurm --check` tells how"
        return Finding("hooks", Level.WARNING, f"{key}: {program} does not call Headway's hook: {late}", mend)
    return _script_problem(settings, path, text) or Finding("hooks", Level.OK, f"{key} is Headway's hook")


def _resources(settings: ControllerSettings, slurm: SlurmSeen) -> Iterator[Finding]:
    known = {partition.name: partition for partition in slurm.partitions}
    for name in settings.partitions:
        if name not in known:
            mend = f"correct partitions in controller.toml; Slurm has {', '.join(sorted(known)) or 'none'}"
            yield Finding("partitions", Level.ERROR, f"Slurm has no partition {name}", mend)
            continue
        gpus = sum(node.gpus for node in slurm.nodes if node.name in known[name].nodes)
        if gpus:
            yield Finding("partitions", Level.OK, f"partition {name}: {gpus} GPUs on {len(known[name].nodes)} nodes")
        else:
            yield Finding(
                "gpus",
                Level.ERROR,
                f"Slurm knows of no GPU in partition {name}",
                "slurm.conf needs GresTypes=gpu and Gres=gpu:N on the node lines, gres.conf the devices",
            )


# --- the controller


def _folders(
    settings: ControllerSettings, host: Host, slurm_user: UserFacts | None, embedded: bool
) -> Iterator[Finding]:
    runtime = host.file(settings.runtime_dir)
    if runtime is None or runtime.kind != "folder":
        yield Finding(
            "runtime-dir",
            Level.ERROR,
            f"{settings.runtime_dir}: no such folder",
            "start the controller (systemctl start headway-controller)",
        )
    else:
        if runtime.mode & 0o022:
            what = f"{settings.runtime_dir} can be written by other users: they could hold or release every job"
            yield Finding("runtime-dir", Level.ERROR, what, f"chmod 0755 {settings.runtime_dir}")
        else:
            yield Finding("runtime-dir", Level.OK, f"{settings.runtime_dir} is there")
        if not embedded:
            yield from _reachable(settings, host, runtime, slurm_user)
    yield _state_dir(settings, host)


def _reachable(
    settings: ControllerSettings, host: Host, runtime: FileFacts, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    """Yield findings on slurmctld's access: job_submit.lua and the hooks must read the lease and write the wake pipe."""
    if slurm_user is None:
        yield Finding(
            "slurm-user",
            Level.SKIPPED,
            "this machine does not know SlurmUser, so slurmctld's access to the files was not checked",
        )
        return
    lease, wake = host.file(settings.lease_path), host.file(settings.wake_path)
    if not runtime.lets(slurm_user, 1) or (lease is not None and not lease.lets(slurm_user, 4)):
        what = f"{settings.lease_path} cannot be read by {slurm_user.name}, the user of slurmctld, so no job is held"
        yield Finding("lease-access", Level.ERROR, what, f"chmod 0755 {settings.runtime_dir}")
    if wake is None:
        what = f"{settings.wake_path} does not exist: the controller notices new jobs only at its next poll"
        yield Finding("wake-pipe", Level.WARNING, what, "start the controller; it makes the pipe")
    elif wake.kind != "pipe":
        mend = f"rm {settings.wake_path}, then restart the controller"
        yield Finding("wake-pipe", Level.ERROR, f"{settings.wake_path} is no named pipe", mend)
    elif not wake.lets(slurm_user, 2):
        what = f"{settings.wake_path} cannot be written by {slurm_user.name}, the user of slurmctld"
        yield Finding("wake-pipe", Level.WARNING, what, f"run the controller as {slurm_user.name}")
    elif wake.mode & 0o002:
        what = f"{settings.wake_path} can be written by every user"
        yield Finding("wake-pipe", Level.ERROR, what, f"chmod o-rw {settings.wake_path}")
    else:
        yield Finding("wake-pipe", Level.OK, f"{slurm_user.name} can wake the controller")
    yield _holds(settings.holds_path, host.file(settings.holds_path), slurm_user)


def _holds(path: Path, found: FileFacts | None, slurm_user: UserFacts) -> Finding:
    """Return whether job_submit.lua, and no other user, can record users' holds."""
    if found is None or found.kind != "folder":
        what = f"{path}: no such folder: users' holds of waiting jobs are refused"
        return Finding("holds", Level.WARNING, what, "restart the controller; it makes the folder")
    if not found.lets(slurm_user, 3):
        what = f"{path} cannot be written by {slurm_user.name}: users' holds of waiting jobs are refused"
        return Finding("holds", Level.WARNING, what, f"run the controller as {slurm_user.name}, or restart it")
    if found.mode & 0o002:
        what = f"{path} can be written by every user: anyone could hold every job"
        return Finding("holds", Level.ERROR, what, f"chmod o-rwx {path}")
    return Finding("holds", Level.OK, f"{slurm_user.name} can record users' holds")


def _state_dir(settings: ControllerSettings, host: Host) -> Finding:
    found = host.file(settings.state_dir)
    if found is None or found.kind != "folder":
        return Finding(
            "state-dir",
            Level.ERROR,
            f"{settings.state_dir}: no such folder",
            f"start the controller, or: install -d -m 0700 -o slurm -g slurm {settings.state_dir}",
        )
    if found.mode & 0o077:
        what = f"{settings.state_dir} is open to others (mode {found.mode:04o})"
        return Finding("state-dir", Level.ERROR, what, f"chmod 0700 {settings.state_dir}")
    return Finding("state-dir", Level.OK, f"{settings.state_dir} is closed to others")


def _controller(settings: ControllerSettings, seen: Seen, slurm_user: UserFacts | None) -> Iterator[Finding]:
    if seen.lease is None or is_stale(seen.lease, seen.now_s):
        when = "there is none" if seen.lease is None else f"the last one is {seen.now_s - seen.lease.time_s:.0f} s old"
        yield Finding(
            "controller",
            Level.ERROR,
            f"the controller does not renew its lease ({when}): Slurm schedules jobs without Headway",
            "systemctl status headway-controller; journalctl -u headway-controller",
        )
        return
    yield Finding("controller", Level.OK, "the controller runs and renews its lease")
    if set(seen.lease.partitions) != set(settings.partitions):
        what = f"the controller manages {', '.join(seen.lease.partitions)}, its settings say {', '.join(settings.partitions)}"
        yield Finding("controller-settings", Level.WARNING, what, "systemctl reload headway-controller")
    if seen.slurm is None:
        return
    if slurm_user is None:
        yield Finding("controller-user", Level.SKIPPED, "this machine does not know SlurmUser")
    elif seen.lease.controller_uid in {0, slurm_user.uid}:
        yield Finding("controller-user", Level.OK, "the controller may change jobs: it runs as SlurmUser or root")
    else:
        what = f"the controller runs as uid {seen.lease.controller_uid}, and Slurm does not let that user change jobs"
        yield Finding("controller-user", Level.ERROR, what, f"run it as {slurm_user.name} (User= of its unit)")


def _tasks(troubles: tuple[str, ...]) -> Iterator[Finding]:
    for trouble in troubles:
        yield Finding("tasks", Level.WARNING, f"in the controller, {trouble}", "journalctl -u headway-controller")


def _policy(settings: ControllerSettings, policy: PolicySeen) -> Iterator[Finding]:
    instead = f"{settings.fallback_policy} decides in its place"
    if not policy.may_look:
        what = f"the policy server was not checked: this user may not open {settings.policy_address}"
        yield Finding(
            "policy", Level.SKIPPED, what, "run `headway doctor` as root; `headway policy show` shows the policy"
        )
    elif policy.spec is None:
        mend = "systemctl status headway-policy; see policy_address in controller.toml"
        yield Finding("policy", Level.WARNING, f"{policy.problem or settings.policy_address}; {instead}", mend)
    elif not policy.healthy:
        what = f"the policy server at {settings.policy_address} reports that it is not serving; {instead}"
        yield Finding("policy", Level.WARNING, what, "journalctl -u headway-policy")
    else:
        yield Finding("policy", Level.OK, f"policy {policy.spec.name} serves at {settings.policy_address}")


def _watchdog(seen: Seen, host: Host) -> Iterator[Finding]:
    if seen.slurm is None:
        return
    match host.unit_active(WATCHDOG_TIMER):
        case True:
            yield Finding("watchdog", Level.OK, f"{WATCHDOG_TIMER} is active")
        case False:
            what = f"{WATCHDOG_TIMER} is not active: if the controller dies, the jobs that it holds stay held"
            yield Finding("watchdog", Level.ERROR, what, f"systemctl enable --now {WATCHDOG_TIMER}")
        case None:
            what = "this machine has no systemd, so the watchdog could not be checked"
            mend = "keep `headway-controller watchdog --every 30` running beside the controller"
            yield Finding("watchdog", Level.SKIPPED, what, mend)
