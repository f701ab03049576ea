"""Findings of `headway doctor` about Slurm: programs, version, configuration, scripts and partitions. Pure functions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.doctor.loaded_conf import slurmctld_started_s
from controller.cli.doctor.scheduling import scheduling_findings
from controller.cli.doctor.seen import Seen, SlurmSeen
from controller.slurm.configuration import installed_files, site_lua
from controller.slurm.configuration.conf import list_items
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import Host, UserFacts
    from controller.slurm.client import SlurmFacts

OLDEST_SLURM = (22, 5)
_MOST_DIGITS = 20
PROGRAMS = ("scontrol", "squeue", "scancel")
MOST_JOBS = 150_000
"""Number of jobs that Headway can certainly read at once: scontrol prints about 1.6 KB for each, and at most 256 MiB are read."""
_SETUP = "headway-setup slurm --apply"
_LATE = "the controller notices starts and ends only at its next poll"


def slurm_findings(
    settings: ControllerSettings, seen: Seen, host: Host, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    """Yield the findings about Slurm, in the order in which to repair them; `slurm_user` is None where it is not known."""
    yield from _programs(settings, seen, host)
    yield from _slurmctld(settings, seen)
    if seen.slurm is not None and seen.slurm.facts is not None:
        yield from _installed(settings, seen.slurm.facts, host, slurm_user)
        yield from _resources(settings, seen.slurm)


def _programs(settings: ControllerSettings, seen: Seen, host: Host) -> Iterator[Finding]:
    if seen.slurm is None:
        yield Finding("slurm", Level.SKIPPED, "slurm_client is embedded: there is no Slurm installation to check")
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


def _slurmctld(settings: ControllerSettings, seen: Seen) -> Iterator[Finding]:
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
    if "SlurmctldHost[1]" in facts.settings and not settings.stand_by:
        what = "slurm.conf has a backup slurmctld, and stand_by is off: after a failover Slurm schedules new jobs without Headway"
        mend = "install a controller on each machine of SlurmctldHost, with stand_by = true: docs/operations.md, A backup slurmctld"
        yield Finding("backup-slurmctld", Level.WARNING, what, mend)
    jobs = facts.settings.get("MaxJobCount", "")
    if jobs.isdecimal() and len(jobs) < _MOST_DIGITS and int(jobs) > MOST_JOBS:
        yield Finding(
            "max-job-count",
            Level.WARNING,
            f"MaxJobCount is {jobs}; Headway cannot read a queue of many more than {MOST_JOBS:,} jobs: then the "
            "controller stops, and the watchdog gives all held jobs to Slurm",
            f"set MaxJobCount to at most {MOST_JOBS} in slurm.conf, then restart slurmctld",
        )


def _installed(
    settings: ControllerSettings, facts: SlurmFacts, host: Host, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    yield _submit_plugin(facts)
    yield _lua(settings, facts, host, slurm_user)
    for key in installed_files.EVENT_KEYS:
        yield _event_hooks(settings, key, _programs_of(facts, key), host)
    for program in _programs_of(facts, "TaskProlog"):
        yield from _task_prolog(Path(program), host)
    yield _batch_sched_delay(list_items(facts.settings.get("SchedulerParameters", "")))
    yield from scheduling_findings(settings, facts)


def _batch_sched_delay(parameters: Iterable[str]) -> Finding:
    check = "batch-sched-delay"
    found = [item for item in parameters if item.startswith("batch_sched_delay=")]
    if found[:1] == ["batch_sched_delay=0"]:  # Slurm takes the first
        return Finding(check, Level.OK, "SchedulerParameters has batch_sched_delay=0")
    if found:
        what = f"SchedulerParameters has {found[0]}, and not batch_sched_delay=0: a placed job may start so many seconds later"
        return Finding(check, Level.WARNING, what, "set it to 0 in slurm.conf by hand, then scontrol reconfigure")
    what = "SchedulerParameters lacks batch_sched_delay=0: a placed job takes up to 3 s to start"
    return Finding(check, Level.WARNING, what, f"{_SETUP}, then scontrol reconfigure")


def _programs_of(facts: SlurmFacts, key: str) -> list[str]:
    """Return the programs of a setting: since Slurm 24.11 it may have several, which are shown as "PrologSlurmctld[0]"."""
    shown = [value for name, value in facts.settings.items() if name == key or name.startswith(f"{key}[")]
    return [program for program in shown if program not in {"", "(null)"}]


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


def _lua(settings: ControllerSettings, facts: SlurmFacts, host: Host, slurm_user: UserFacts | None) -> Finding:
    folder = Path(facts.settings.get("SLURM_CONF", settings.slurm_conf or "/etc/slurm/slurm.conf")).parent
    path = folder / installed_files.LUA_NAME
    text = host.text(path)
    if text is not None and (problem := _unusable_lua(path, text, host, slurm_user)):
        return problem
    if text is not None and installed_files.script_version(text) is None and site_lua.loads_ours(text):
        if misplaced := site_lua.misplaced(text):
            mend = f"move that line: the script needs it {site_lua.PLACE}"
            return Finding("job-submit-lua", Level.ERROR, f"{path}: {misplaced}", mend)
        path = folder / installed_files.CHAINED_LUA_NAME
        text = host.text(path)
        if text is not None and (problem := _unusable_lua(path, text, host, slurm_user)):
            return problem
    if text is None:
        return Finding(
            "job-submit-lua", Level.ERROR, f"{path}: does not exist, or cannot be read", f"run {_SETUP} as root"
        )
    if installed_files.script_version(text) is None:
        line = f'dofile("{folder / installed_files.CHAINED_LUA_NAME}")'
        mend = f"{_SETUP}, and add to that script {site_lua.PLACE}: {line}"
        return Finding(
            "job-submit-lua", Level.ERROR, f"{path} is the site's own script, and does not load Headway's", mend
        )
    problem = _script_problem(settings, path, text) or _not_loaded_again(path, facts, host)
    return problem or Finding("job-submit-lua", Level.OK, f"{path} is Headway's, version {installed_files.VERSION}")


def _not_loaded_again(path: Path, facts: SlurmFacts, host: Host) -> Finding | None:
    """Return the finding about a headway.lua that slurmctld may not have loaded: it looks only at the time of the site's script."""
    own = path.with_name(installed_files.LUA_NAME)
    written_s, own_s, started_s = host.written_s(path), host.written_s(own), slurmctld_started_s(facts)
    if path == own or written_s is None or own_s is None or written_s <= own_s:
        return None
    if started_s is not None and started_s > written_s:
        return None
    what = f"slurmctld may still run an earlier {path}: it loads that file again only when {own} is newer"
    return Finding("job-submit-lua", Level.WARNING, what, f"touch {own}")


def _unusable_lua(path: Path, text: str, host: Host, slurm_user: UserFacts | None) -> Finding | None:
    """Return the finding about a script that slurmctld cannot load: it ends when it is next started."""
    fatal = "slurmctld does not start again with it"
    found, folder = host.file(path), host.file(path.parent)
    closed = [
        facts
        for facts, bits in ((found, 4), (folder, 1))
        if slurm_user is not None and facts is not None and not facts.lets(slurm_user, bits)
    ]
    if closed and slurm_user is not None:
        what = f"{path} cannot be read by {slurm_user.name}, the user of slurmctld: {fatal}"
        mend = f"chmod o+r {path}" if closed[0] is found else f"chmod o+x {path.parent}"
        return Finding("job-submit-lua", Level.ERROR, what, mend)
    if problem := host.lua_error(text):
        what = f"{path} is not valid Lua ({problem}): {fatal}"
        return Finding("job-submit-lua", Level.ERROR, what, f"correct it, or restore its copy, or run {_SETUP} as root")
    return None


def _script_problem(settings: ControllerSettings, path: Path, text: str) -> Finding | None:
    check = "job-submit-lua" if path.suffix == ".lua" else "hooks"
    version, runtime_dir = installed_files.script_version(text), installed_files.runtime_dir_of(text)
    mend = f"{_SETUP} --runtime-dir {settings.runtime_dir}"
    if version != installed_files.VERSION:
        what = f"{path} has version {version}, this Headway needs {installed_files.VERSION}"
        return Finding(check, Level.ERROR, what, mend)
    if runtime_dir != settings.runtime_dir:
        what = f"{path} looks for the controller in {runtime_dir}, but runtime_dir in its settings is {settings.runtime_dir}"
        return Finding(check, Level.ERROR, what, mend)
    return None


def _event_hooks(settings: ControllerSettings, key: str, programs: list[str], host: Host) -> Finding:
    """Return the finding about a setting that may have several programs: one of them has to be our hook, or to call it."""
    if not programs:
        return Finding("hooks", Level.WARNING, f"{key} is not set: {_LATE}", f"{_SETUP}, then restart slurmctld")
    found = [_event_hook(settings, key, program, host) for program in programs]
    return next((finding for finding in found if finding.level is Level.OK), found[0])


def _event_hook(settings: ControllerSettings, key: str, program: str, host: Host) -> Finding:
    path = Path(program)
    found = host.file(path)
    if found is None or found.kind != "file" or not found.mode & 0o111:
        mend = f"{_SETUP}, or correct {key} in slurm.conf"
        return Finding("hooks", Level.ERROR, f"{key}: {program} cannot be run on this machine", mend)
    text = host.text(path) or ""
    if installed_files.script_version(text) is None:
        # The name is enough, since a script may put the path together.
        if installed_files.calls_ours(text, installed_files.EVENT_HOOK):
            return Finding("hooks", Level.OK, f"{key}: {program} is the site's own and calls Headway's")
        mend = f"call {installed_files.EVENT_HOOK} from it; `headway-setup slurm --check` shows how"
        return Finding("hooks", Level.WARNING, f"{key}: {program} does not call Headway's hook: {_LATE}", mend)
    return _script_problem(settings, path, text) or Finding("hooks", Level.OK, f"{key} is Headway's hook")


def _task_prolog(path: Path, host: Host) -> Iterator[Finding]:
    """Yield the findings about a TaskProlog of Headway's, if this machine sees it: it may be on compute nodes only."""
    text = host.text(path) or ""
    version = installed_files.script_version(text)
    if version is None:
        return
    if version != installed_files.VERSION:
        what = f"TaskProlog: {path} has version {version}, this Headway needs {installed_files.VERSION}"
        mend = f"{_SETUP}, and copy it to every compute node that has its own copy of it"
        yield Finding("hooks", Level.ERROR, what, mend)
        return
    side = installed_files.job_side_of(text)
    if side is not None and host.file(side / "headway_job" / "__init__.py") is not None:
        yield Finding("hooks", Level.OK, "TaskProlog is Headway's hook")
        return
    what = f"TaskProlog: {path} has jobs load {side or 'no folder'}, which is not on this machine"
    if side is not None and not side.is_relative_to(sys.prefix):
        yield Finding("hooks", Level.SKIPPED, f"{what}; `headway-agent check` looks for it on a node")
        return
    # Nodes have this environment at the same path unless a folder is named: its Python may have got another version.
    mend = "headway-setup slurm --job-side PATH --apply, with the path that `headway-agent check` prints on a node"
    yield Finding("hooks", Level.WARNING, f"{what}: jobs report nothing where nodes lack it too", mend)


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
                f"Slurm has no GPUs in partition {name}",
                "add GresTypes=gpu, and Gres=gpu:N on the node lines, to slurm.conf, and the devices to gres.conf",
            )
