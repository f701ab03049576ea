"""The roots: Debian with Slurm, and with everything that the parts would download, as they run without a network.

A root is built in stages. Each leaves a stamp, so that a build that was interrupted goes on with the stage that it was in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.releases.container import ContainerError, Mount, build, tail
from tests.releases.release import Release

REPOSITORY = Path(__file__).resolve().parents[2]
WHEELS = Path("/var/cache/headway-wheels")
"""Folder of a root with the Python packages that the README's installation needs."""
BUILD_PACKAGES = ("gcc", "libc6-dev", "python3-dev", "libslurm-dev")
"""Packages whose files are in the root, without being installed: a bare machine has no compiler."""
_PACKAGES = (
    *("dbus", "iproute2", "procps"),
    "python3-venv",  # the README names it
    "lua5.1",  # luac, with which headway-setup checks job_submit.lua
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "slurmdbd", "mariadb-server-core"),
)
_UPDATE = "apt-get -q update -o Acquire::Check-Valid-Until=false"
"""A mirror may be frozen at a date: then its lists of sid are signed, but no longer valid by their own word."""
_STAGE_S = 1800.0
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_SETTINGS = Path("/etc/pip.conf")
_INSIDE = Path("/run/headway-build")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the roots: HEADWAY_RELEASES, else `headway/releases` in the user's folder of caches."""
    if folder := environment.get("HEADWAY_RELEASES"):
        return Path(folder)
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/root")) / ".cache"
    return Path(home) / "headway" / "releases"


@dataclass(frozen=True, slots=True)
class Root:
    """One release's root in the cache: NAME has the file system, NAME.state stamps, logs and results."""

    cache: Path
    release: Release

    @property
    def folder(self) -> Path:
        """Its file system."""
        return self.cache / self.release.slurm

    @property
    def state(self) -> Path:
        """Folder with stamps, logs and results."""
        return self.cache / f"{self.release.slurm}.state"

    def build(self, mirror: Callable[[], str | None], checkout: Path, says: Callable[[str], None]) -> None:
        """Do the stages that are not done. Raises ContainerError."""
        self.state.mkdir(parents=True, exist_ok=True)
        self._stage("debian", "", says, lambda: self._debootstrap(mirror()))
        self._stage("slurm", " ".join(_PACKAGES), says, self._install)
        self._stage("downloads", " ".join(BUILD_PACKAGES), says, self._download)
        wanted = b"".join((checkout / name).read_bytes() for name in ("constraints.txt", "pyproject.toml"))
        self._stage("wheels", hashlib.sha256(wanted).hexdigest(), says, lambda: self._wheels(checkout))

    def _stage(self, name: str, key: str, says: Callable[[str], None], work: Callable[[], None]) -> None:
        stamp = self.state / f"{name}.done"
        if stamp.exists() and stamp.read_text() == key:
            return
        says(f"{self.release.slurm}  root: {name}")
        try:
            work()
        except (ContainerError, subprocess.SubprocessError) as error:
            raise ContainerError(f"{self.folder}: {name}: {error}") from error
        stamp.write_text(key)

    def _debootstrap(self, mirror: str | None) -> None:
        if mirror is None:
            raise ContainerError("apt names no mirror of Debian: run `apt-get update`, or give --mirror")
        partial = self.folder.with_name(f"{self.folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        log = self.state / "debian.log"
        words = ("debootstrap", "--variant=minbase", "--include=systemd-sysv,dbus", self.release.suite)
        with log.open("wb") as output:
            done = subprocess.run(
                (*words, str(partial), mirror), stdout=output, stderr=output, timeout=_STAGE_S, check=False
            )
        if done.returncode != 0:
            raise ContainerError(tail(log))
        partial.rename(self.folder)

    def _install(self) -> None:
        self._apt(
            f"{_UPDATE} && apt-get -q install -y --no-install-recommends {' '.join(_PACKAGES)}\n"
            # slurmd of 24.11 and later waits for a configuration, and the boot for slurmd; debootstrap gave this machine's name
            "systemctl disable slurmctld slurmd slurmdbd && rm -f /etc/hostname"
        )

    def _download(self) -> None:
        self._apt(f"apt-get -q install -y --no-install-recommends --download-only {' '.join(BUILD_PACKAGES)}")

    def _apt(self, text: str) -> None:
        build(
            self.folder,
            text,
            (),
            {"DEBIAN_FRONTEND": "noninteractive"},
            self.state / "packages.log",
            timeout_s=_STAGE_S,
        )

    def _wheels(self, checkout: Path) -> None:
        required = tomllib.loads((checkout / "pyproject.toml").read_text())["build-system"]["requires"]
        text = f"""
            rm -rf {WHEELS} {_PIP_SETTINGS} /tmp/venv && python3 -m venv /tmp/venv && cd {_INSIDE}/checkout
            /tmp/venv/bin/pip wheel --quiet -w {WHEELS} {" ".join(f"'{one}'" for one in required)}
            cp -r {_INSIDE}/checkout /tmp/checkout && cd /tmp/checkout
            /tmp/venv/bin/pip wheel --quiet -w {WHEELS} -c constraints.txt '.[controller,top]'
            rm -rf {WHEELS}/headway_scheduler-* /tmp/venv /tmp/checkout
            printf '[global]\\nno-index = true\\nfind-links = {WHEELS}\\n' > {_PIP_SETTINGS}
        """
        own = {_CERTIFICATES: "ca.crt", _PIP_SETTINGS: "pip.conf"}
        mounts = [Mount(path, _INSIDE / name) for path, name in own.items() if path.exists()]
        environment = {key: value for key, value in os.environ.items() if _is_network(key)}
        environment |= {"PIP_CONFIG_FILE": str(_INSIDE / "pip.conf"), "PIP_CERT": str(_INSIDE / "ca.crt")}
        build(
            self.folder,
            text,
            [*mounts, Mount(checkout, _INSIDE / "checkout")],
            environment,
            self.state / "wheels.log",
            timeout_s=_STAGE_S,
        )


def _is_network(variable: str) -> bool:
    """Return whether an environment variable is one of pip's settings or names a proxy. Folders of this machine are not inside."""
    return variable.upper().endswith("_PROXY") or (variable.startswith("PIP_") and variable != "PIP_FIND_LINKS")
