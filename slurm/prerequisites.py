"""Packages, programs and rights that the mini-cluster needs, and their installation.

`python -m slurm.prerequisites` lists what is missing; `--install-if-root` installs Slurm's packages on Debian and Ubuntu.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slurm.apt import allow_service_starts, install
from slurm.errors import CommandError
from slurm.processes import search_path
from slurm.setup import spank_build as setup_build

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "iproute2")
"""Packages of Debian and Ubuntu."""

ACCOUNTING_PACKAGES = ("slurmdbd", "mariadb-server-core")
"""Packages that accounting (limits) needs in addition. Slurm's MySQL plugin is part of slurmdbd; the full MariaDB is not needed."""

BUILD_PACKAGES = setup_build.BUILD_PACKAGES
"""Packages that a build of the SPANK plugin needs."""

CONTAINER_PACKAGES = ("podman", "crun")
"""Packages that tests of jobs in containers need. They are not installed with the others, as only these tests need them."""

_PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sinfo", "sbatch", "srun", "munged", "ip", "tc")
_ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd")
_CONTAINER_PROGRAMS = ("podman", "conmon", "crun")
_BROWSERS = ("chromium", "chromium-browser")
_PROMETHEUS = ("prometheus", "promtool")
_NODE_EXPORTERS = ("prometheus-node-exporter", "node_exporter")
_GROUPS = ((_PROGRAMS, PACKAGES), (_ACCOUNTING_PROGRAMS, ACCOUNTING_PACKAGES))
_UTIL_LINUX = ("nsenter", "unshare", "setpriv", "mount")
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}


def missing(*, accounting: bool = False, spank: bool = False, containers: bool = False) -> list[str]:
    """Return the reasons, each with what to do, why no mini-cluster can be booted here; empty when one can be.

    `accounting`, `spank` and `containers` add what accounting, a build of the SPANK plugin and jobs in containers need.
    """
    reasons = _missing_to_build() if spank else []
    reasons += _missing_for_containers() if containers else []
    if not sys.platform.startswith("linux"):
        reasons.append("the mini-cluster needs Linux, because it consists of namespaces")
    elif os.geteuid() != 0:
        reasons.append("the mini-cluster needs root, because it creates namespaces and network links; run it with sudo")
    elif absent := _missing_capabilities():
        reasons.append(f"root lacks {', '.join(absent)} here; if this is a container, start it with --privileged")
    elif refused := _refusal_of_device_files():
        reasons.append(
            f"root cannot make device files here ({refused}), as in a user namespace; "
            "if this is a container without root's rights (rootless), start it with those of root"
        )
    for wanted, packages in _GROUPS if accounting else _GROUPS[:1]:
        if programs := _absent(wanted):
            reasons.append(
                f"not installed: {', '.join(programs)}; `python -m slurm.prerequisites --install-if-root`, "
                f"or install the packages {' '.join(packages)}"
            )
    if programs := _absent(_UTIL_LINUX):
        reasons.append(f"not installed: {', '.join(programs)}; install the package util-linux")
    return reasons


def _absent(programs: Sequence[str]) -> list[str]:
    path = search_path(os.environ.get("PATH", ""))
    return [program for program in programs if shutil.which(program, path=path) is None]


def _missing_to_build() -> list[str]:
    tools = setup_build.find_toolchain()
    return tools if isinstance(tools, list) else []


def _missing_for_containers() -> list[str]:
    programs = _absent(_CONTAINER_PROGRAMS)
    install = f"`apt-get install {' '.join(CONTAINER_PACKAGES)}`"
    return [f"not installed: {', '.join(programs)}; {install} on Debian and Ubuntu"] if programs else []


def _missing_capabilities() -> list[str]:
    status = Path("/proc/self/status").read_text(errors="replace")
    effective = int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)
    return [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]


def _refusal_of_device_files() -> str:
    """Return the error of a device file that is made for a trial; empty when it can be made.

    The capability alone does not say it: in a user namespace, CAP_MKNOD allows none.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(Path(folder) / "trial", stat.S_IFCHR | 0o600, os.makedev(195, 0))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _install_if_root() -> list[str]:
    """Install what is missing, where that is possible. Return the failures."""
    absent: list[Sequence[str]] = [packages for programs, packages in _GROUPS if _absent(programs)]
    if _missing_to_build():
        absent.append(BUILD_PACKAGES)
    if not absent or os.geteuid() != 0:
        return []
    if _absent(("apt-get",)):
        return [
            "nothing was installed, because this machine has no apt-get (only packages of Debian and Ubuntu are known)"
        ]
    failures = []
    for packages in absent:  # one by one: where MariaDB cannot be installed, Slurm still can
        _say(f"installing {' '.join(packages)}")
        try:
            install(packages)
        except CommandError as error:
            hint = "; on Ubuntu they are in the component universe" if "Unable to locate" in str(error) else ""
            failures.append(f"installing {' '.join(packages)} failed{hint}: {error}")
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Report what is missing; with --install-if-root install it where possible. The status is 0, as tests skip what cannot run."""
    parser = argparse.ArgumentParser(prog="python -m slurm.prerequisites", description=__doc__)
    parser.add_argument(
        "--install-if-root", action="store_true", help="install missing packages of Slurm, when run as root"
    )
    options = parser.parse_args(arguments)
    allow_service_starts()
    for failure in _install_if_root() if options.install_if_root else []:
        _say(failure)
    reasons = missing()
    for reason in reasons:
        _say(f"tests on a real Slurm will be skipped: {reason}")
    if not reasons:
        _say("a mini-cluster with a real Slurm can be booted here")
        if closed := closed_folder(Path(__file__)):
            _say(
                f"tests of agents and users on a real Slurm will fail: other users cannot enter {closed}; "
                "put the checkout into a folder that all users can enter, such as /srv"
            )
        for reason in missing(accounting=True):
            _say(f"tests of limits on a real Slurm will be skipped: {reason}")
        for reason in _missing_to_build():
            _say(f"tests of the SPANK plugin will be skipped: {reason}")
        for reason in _missing_for_containers():
            _say(f"tests of jobs in containers will be skipped: {reason}")
    if len(_absent(_BROWSERS)) == len(_BROWSERS):
        _say(
            "tests of the web page in a browser will be skipped: no chromium; `apt-get install chromium` on Debian "
            "(a large package, so it is not installed with the others)"
        )
    if _absent(_PROMETHEUS):
        _say("tests of the alerts with Prometheus will be skipped; `apt-get install prometheus` on Debian and Ubuntu")
    if len(_absent(_NODE_EXPORTERS)) == len(_NODE_EXPORTERS):
        _say("tests of the nodes' metrics with Prometheus will be skipped; `apt-get install prometheus-node-exporter`")
    return 0


def closed_folder(path: Path) -> Path | None:
    """Return the outermost folder on the way to a path that other users cannot enter; None: there is none."""
    return next(
        (folder for folder in reversed(path.resolve().parents) if not folder.stat().st_mode & stat.S_IXOTH), None
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
