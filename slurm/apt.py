"""Installation of packages of Debian and Ubuntu on a machine that may serve other purposes.

Invariant: nothing is removed, no service of a package is started, neither now nor at the next boot, and dpkg is never interrupted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm.errors import CommandError
from slurm.foreign_slurm import foreign_slurm
from slurm.processes import failure_text, run, search_path
from slurm.signals import signals_deferred

_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_COMMENT = "# put here by headway for the time of an installation"
_DOWNLOAD_TIMEOUT_S = 1200.0
_UNITS = ("munge.service", "slurmctld.service", "slurmd.service", "slurmdbd.service")
_NOTICE = "an installation must not be interrupted; this program ends after it"


def install(packages: Sequence[str], policy: Path = _POLICY) -> None:
    """Install packages without starting their services. Raises CommandError with the output of apt, or with the reason not to.

    Packages of Slurm are not installed beside a Slurm of another origin.
    """
    if any("slurm" in name for name in packages) and (others := foreign_slurm()):
        raise CommandError(
            f"this machine has a Slurm that does not come from packages of Debian or Ubuntu ({', '.join(others)}); "
            "nothing is installed beside it"
        )
    words = ("install", "-y", "--no-install-recommends", "--no-upgrade", "--no-remove", *packages)
    _download(words)
    with _locked(policy.parent) as lock, signals_deferred(_NOTICE), _boots_as_before(), no_service_starts(policy):
        _unpack(words, lock)


def _download(words: Sequence[str]) -> None:
    """Download packages, which may be interrupted. A new machine has no package lists yet, an old one has outdated ones."""
    try:
        _apt(*words, "--download-only")
    except CommandError:
        _apt("update")
        _apt(*words, "--download-only")


def _command(words: Sequence[str]) -> tuple[str, ...]:
    return ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", *words)


def _environment() -> dict[str, str]:
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": search_path(os.environ.get("PATH", ""))}


def _apt(*words: str) -> None:
    run(*_command(words), env=_environment(), timeout_s=_DOWNLOAD_TIMEOUT_S)


def _unpack(words: Sequence[str], lock: int) -> None:
    """Let apt unpack and configure packages, without a time limit: a dpkg that is killed leaves packages half installed.

    Should this process be killed, apt still ends well: its output goes to a file, as a pipe would have no reader, and it keeps
    the lock.
    """
    argv = _command(words)
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(),
            pass_fds=(lock,),
            start_new_session=True,
        ) as process:
            status = process.wait()
        if status != 0:
            output.seek(0)
            text = output.read().decode(errors="replace")
            raise CommandError(failure_text(argv, subprocess.CompletedProcess(argv, status, "", text)))


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[int]:
    """Hold the lock of installations: that of the folder of policy-rc.d, as a file of its own would remain.

    Raises BlockingIOError when another process holds it and `wait` is off.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _boots_as_before() -> Iterator[None]:
    """Disable the services that packages enable for the next boot in the block. Those that were enabled before stay so."""
    before = _enabled_units()
    try:
        yield
    finally:
        if added := _enabled_units() - before:
            run("systemctl", "--quiet", "disable", *sorted(added), check=False)


def _enabled_units() -> set[str]:
    if shutil.which("systemctl", path=search_path(os.environ.get("PATH", ""))) is None:
        return set()
    return {unit for unit in _UNITS if run("systemctl", "--quiet", "is-enabled", unit, check=False).returncode == 0}


@contextlib.contextmanager
def no_service_starts(policy: Path = _POLICY) -> Iterator[None]:
    """Forbid package scripts to start services, by a policy-rc.d; afterwards put the old policy-rc.d back.

    A run that was killed may have left the file of Headway in place: then the copy beside it is the machine's own.
    """
    if policy.exists() and not _is_ours(policy):
        policy.replace(_copy_of(policy))
    draft = policy.with_name(policy.name + ".headway-draft")
    draft.write_text(f"#!/bin/sh\n{_POLICY_COMMENT}\nexit 101\n")
    draft.chmod(0o755)
    draft.replace(policy)
    try:
        yield
    finally:
        _put_back(policy)


def allow_service_starts(policy: Path = _POLICY) -> None:
    """Put the machine's own policy-rc.d back after a killed installation. Do nothing while one runs, or without rights."""
    if not os.access(policy.parent, os.W_OK) or not _is_ours(policy):
        return
    with contextlib.suppress(BlockingIOError), _locked(policy.parent, wait=False):
        if _is_ours(policy):  # an installation may have ended in the meantime
            _put_back(policy)


def _is_ours(policy: Path) -> bool:
    """Return whether Headway wrote the file. A file that cannot be read is the machine's own: Headway's is open to all."""
    try:
        return policy.is_file() and _POLICY_COMMENT in policy.read_text(errors="replace")
    except OSError:
        return False


def _copy_of(policy: Path) -> Path:
    return policy.with_name(policy.name + ".before-headway")


def _put_back(policy: Path) -> None:
    before = _copy_of(policy)
    if before.exists() or before.is_symlink():
        before.replace(policy)
    else:
        policy.unlink(missing_ok=True)
