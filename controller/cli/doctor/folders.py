"""Findings of `headway doctor` about the controller's folders: existence, access and permissions. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import FileFacts, Host, UserFacts


def folder_findings(
    settings: ControllerSettings, host: Host, slurm_user: UserFacts | None, *, slurmctld_looks: bool
) -> Iterator[Finding]:
    """Yield the findings about runtime_dir and state_dir; `slurm_user` is None where this machine does not know SlurmUser.

    `slurmctld_looks`: the slurmctld of this machine is active, and its scripts need the files in runtime_dir.
    """
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
            yield Finding("runtime-dir", Level.OK, f"{settings.runtime_dir} exists")
        if slurmctld_looks:
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
        yield Finding("wake-pipe", Level.ERROR, f"{settings.wake_path} is not a named pipe", mend)
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
        what = f"{path} can be written by every user, so that every user could hold every job"
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
        what = f"{settings.state_dir} is open to other users (mode {found.mode:04o})"
        return Finding("state-dir", Level.ERROR, what, f"chmod 0700 {settings.state_dir}")
    return Finding("state-dir", Level.OK, f"{settings.state_dir} is closed to other users")
