"""Findings of `headway doctor` about this machine: scripts, MUNGE's key, other controllers, units, programs to restart, compiled
modules. Pure functions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.doctor.seen import Seen
from controller.slurm.configuration import installed_files
from policies.serving.runtime.finding import Finding, Level
from policies.serving.runtime.version import VERSION

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import Host, UserFacts
    from controller.slurm.client import SlurmFacts

MUNGE_KEY = Path("/etc/munge/munge.key")
POLICY_UNIT = "headway-policy.service"
POLICY_ENV = Path("/etc/headway/policy.env")
PACKAGED_UNITS = Path("/usr/lib/systemd/system")
COPIED_UNITS = Path("/etc/systemd/system")
"""Folders of units: of packages, and of the administrator, whose units hide those of packages."""
SHIPPED_UNITS = Path(sys.prefix) / "share" / "headway" / "systemd"
"""Folder of the units of this installation, from which an administrator copies them."""
_CODE = Path(__file__)
"""A file that every installation writes anew."""
_START_MARGIN_S = 5.0


def machine_findings(
    settings: ControllerSettings, seen: Seen, host: Host, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    """Yield the findings, in the order in which to repair them; `slurm_user` is None where this machine does not know SlurmUser."""
    if seen.slurm is not None:
        if seen.slurm.facts is not None and slurm_user is not None:
            yield from _scripts(seen.slurm.facts, host, slurm_user)
        yield from _munge_key(host)
    yield from _other_controllers(settings, seen, host, slurm_user)
    yield from _hidden_units(host)
    yield from _restart_controller(seen, host)
    yield from _restart_policy(host)
    yield _compiled(host)


def _scripts(facts: SlurmFacts, host: Host, slurm_user: UserFacts) -> Iterator[Finding]:
    """Yield a finding for each script beside slurm.conf that slurmctld may not read, or not run; job_submit.lua is checked with
    its content."""
    folder = Path(facts.settings.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    hook = folder / installed_files.HOOKS_FOLDER / installed_files.EVENT_HOOK
    for path in (folder / installed_files.CHAINED_LUA_NAME, hook):
        found, around = host.file(path), host.file(path.parent)
        if found is None:
            continue
        bits = 5 if path == hook else 4
        if around is not None and not around.lets(slurm_user, 1):
            closed, mode = path.parent, "0755"
        elif not found.lets(slurm_user, bits):
            closed, mode = path, "0755" if path == hook else "0644"
        else:
            continue
        fatal = "jobs are requeued" if path == hook else "the next restart of slurmctld fails"
        what = f"{slurm_user.name}, the user of slurmctld, may not {'run' if path == hook else 'read'} {path}: {fatal}"
        yield Finding("script-access", Level.ERROR, what, f"chmod {mode} {closed}")


def _munge_key(host: Host) -> Iterator[Finding]:
    """Yield a finding when other users may read or replace the key; none when this user cannot see it."""
    found = host.file(MUNGE_KEY)
    if found is None:
        return
    munge = host.user("munge")
    if found.mode & 0o077:
        what = f"{MUNGE_KEY} has mode {found.mode:04o}: whoever reads it can act as any user, towards Slurm and Headway"
        mend = f"chmod 0400 {MUNGE_KEY}, and make a new key if users could read this one"
        yield Finding("munge-key", Level.ERROR, what, mend)
    elif munge is not None and found.uid not in {0, munge.uid}:
        what = f"{MUNGE_KEY} belongs to uid {found.uid}, and not to munge or root"
        yield Finding("munge-key", Level.ERROR, what, f"chown munge: {MUNGE_KEY}")
    else:
        yield Finding("munge-key", Level.OK, f"{MUNGE_KEY} is closed to other users")


def _other_controllers(
    settings: ControllerSettings, seen: Seen, host: Host, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    """Yield a finding for each controller of the same Slurm with other folders: its lease and journal are not this one's."""
    if seen.slurm is None:
        return
    known = seen.slurm.facts.settings if seen.slurm.facts else {}
    default = Path(
        known.get("SLURM_CONF", "/etc/slurm/slurm.conf")
    )  # without slurm_conf, Slurm's programs use this one
    uids = {0} | ({seen.lease.controller_uid} if seen.lease else set()) | ({slurm_user.uid} if slurm_user else set())
    ours, folder = host.resolved(settings.slurm_conf or default), host.resolved(settings.runtime_dir)
    for other in host.controllers(frozenset(uids)):
        if host.resolved(other.slurm_conf or default) == ours and host.resolved(other.runtime_dir) != folder:
            what = (
                f"another controller of the same Slurm runs on this machine (pid {other.pid}, settings {other.config}, runtime_dir "
                f"{other.runtime_dir}): each places jobs that the other holds"
            )
            yield Finding(
                "other-controller", Level.ERROR, what, f"stop it: systemctl status {other.pid} names its unit"
            )


def _hidden_units(host: Host) -> Iterator[Finding]:
    """Yield a finding when units that were copied by hand hide those of the installed package; without a package, when they are of
    another version."""
    names = sorted(name for name in host.names(PACKAGED_UNITS) if name.startswith("headway-"))
    if not names:
        yield from _old_units(host)
        return
    copies = [path for name in names if _is_copy(host, path := COPIED_UNITS / name)]
    if not copies:
        yield Finding("units", Level.OK, "systemd runs the units of the package")
        return
    listed = " ".join(map(str, copies))
    what = (
        f"units in {COPIED_UNITS} hide those of the installed package, and stay as they are at its upgrades: {listed}"
    )
    mend = f"rm {listed}; systemctl daemon-reload; then restart the services. Own settings belong into drop-ins (systemctl edit)"
    yield Finding("units", Level.WARNING, what, mend)


def _old_units(host: Host) -> Iterator[Finding]:
    """Yield a finding about units that differ from those of this installation, whose path they may name."""
    old = []
    for name in sorted(host.names(SHIPPED_UNITS)):
        shipped, copy = host.text(SHIPPED_UNITS / name), host.text(COPIED_UNITS / name)
        if (
            shipped is not None
            and copy is not None
            and copy not in {shipped, shipped.replace("/opt/headway", sys.prefix)}
        ):
            old.append(name)
    if not old:
        return
    what = f"units in {COPIED_UNITS} are not those of the installed version: {', '.join(old)}"
    files = " ".join(str(SHIPPED_UNITS / name) for name in old)
    mend = (
        f"cp {files} {COPIED_UNITS}/; systemctl daemon-reload; then restart the services. Own settings belong into drop-ins "
        "(systemctl edit)"
    )
    yield Finding("units", Level.WARNING, what, mend)


def _is_copy(host: Host, path: Path) -> bool:
    """Return whether a unit is a file of its own: neither a link to the package's, nor masked by a link to /dev/null."""
    found = host.file(path)
    return found is not None and found.kind == "file" and host.resolved(path) == path


def _restart_controller(seen: Seen, host: Host) -> Iterator[Finding]:
    if not seen.version:
        return
    if seen.version != VERSION:
        what = f"the controller runs version {seen.version}, and {VERSION} is installed"
    elif _written_after(host, _CODE, seen.started_s):
        what = "the controller was started before the programs that are installed now"
    else:
        yield Finding("controller-version", Level.OK, f"the controller runs the installed version, {VERSION}")
        return
    yield Finding("controller-version", Level.WARNING, what, "systemctl restart headway-controller")


def _restart_policy(host: Host) -> Iterator[Finding]:
    started_s = host.unit_started_s(POLICY_UNIT)
    if started_s is None:
        return
    for path, what in (
        (_CODE, "the programs that are installed now"),
        (POLICY_ENV, f"the last change of {POLICY_ENV}"),
    ):
        if _written_after(host, path, started_s):
            yield Finding(
                "policy-restart",
                Level.WARNING,
                f"the policy server was started before {what}",
                "systemctl restart headway-policy",
            )
            return


def _written_after(host: Host, path: Path, started_s: float) -> bool:
    """Return whether a file was certainly written after a start, whose time is known to a few seconds."""
    written_s = host.written_s(path)
    return written_s is not None and written_s > started_s + _START_MARGIN_S


def _compiled(host: Host) -> Finding:
    missing = host.not_compiled()
    if not missing:
        return Finding("compiled", Level.OK, "the inner loops are compiled")
    what = (
        f"not compiled: {', '.join(missing)}. Simulations take several times longer, and decisions of sched2 and sched2-rule too; "
        "nothing else is slower"
    )
    mend = "install gcc, libc6-dev and python3-dev, then install Headway again with pip's --force-reinstall --no-deps"
    return Finding("compiled", Level.WARNING, what, mend)
