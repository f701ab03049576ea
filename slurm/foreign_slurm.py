"""Slurms of this machine that do not come from packages of Debian or Ubuntu, such as SchedMD's packages and builds from source."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm.processes import run, search_path

_DAEMONS = ("slurmctld", "slurmd", "slurmdbd")
_PROGRAMS = (*_DAEMONS, "scontrol", "sinfo", "sbatch", "srun", "sacctmgr")
_PACKAGES = frozenset({"slurmctld", "slurmd", "slurmdbd", "slurm-client"})
"""Debian's packages of these programs. Those of SchedMD, slurm-smd-*, conflict with them."""
_UNITS = tuple(
    Path(folder) for folder in ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
)
"""Folders of systemd's units."""
_PREFIXES = "@-:+!|"
"""Characters before the path in ExecStart."""
_PROC = Path("/proc")


def foreign_slurm(units: Sequence[Path] = _UNITS, proc: Path = _PROC) -> list[str]:
    """Return the paths of Slurm's programs here that do not come from packages of Debian or Ubuntu; empty when there are none.

    They are looked for in PATH, in the units of Slurm's daemons, and among the processes: sudo removes a folder such as
    /opt/slurm/sbin from PATH.
    """
    path = search_path(os.environ.get("PATH", ""))
    found = [Path(where) for program in _PROGRAMS if (where := shutil.which(program, path=path)) is not None]
    found += [*_started_by(units), *_running(proc)]
    if not found:
        return []
    owners = _owners([program.resolve() for program in found])
    foreign = [str(program) for program in found if not owners.get(str(program.resolve()), set()) & _PACKAGES]
    return list(dict.fromkeys(foreign))


def _owners(files: Sequence[Path]) -> dict[str, set[str]]:
    """Return file → its packages. A file of no package is left out."""
    owners: dict[str, set[str]] = {}
    for line in run("dpkg-query", "--search", *map(str, files), check=False).stdout.splitlines():
        packages, _, file = line.partition(": ")
        owners.setdefault(file, set()).update(name.split(":")[0] for name in packages.split(", "))
    return owners


def _started_by(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the daemons that systemd's units start and that exist."""
    for folder in folders:
        for daemon in _DAEMONS:
            for file in (folder / f"{daemon}.service", *folder.glob(f"{daemon}.service.d/*.conf")):
                yield from (program for program in _programs_in(file) if program.name == daemon and program.is_file())


def _programs_in(unit: Path) -> list[Path]:
    """Return the programs of a unit's ExecStart; none where it cannot be read."""
    try:
        text = unit.read_text(errors="replace")
    except OSError:
        return []
    commands = (
        value.split()
        for key, _, value in (line.partition("=") for line in text.splitlines())
        if key.strip() == "ExecStart"
    )
    return [Path(words[0].lstrip(_PREFIXES)) for words in commands if words]


def _running(proc: Path) -> Iterator[Path]:
    """Yield the programs of Slurm's daemons that run on this machine itself.

    Daemons in namespaces of their own belong to a mini-cluster or to a container: a service of the machine has the network and the
    pids of this process.
    """
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            # After an upgrade the kernel adds this to the path of the program that was replaced.
            program = Path(str((process / "exe").readlink()).removesuffix(" (deleted)"))
            if program.name in _DAEMONS and _shares_namespaces(process, proc / "self"):
                yield program


def _shares_namespaces(one: Path, other: Path) -> bool:
    return all((one / "ns" / kind).samefile(other / "ns" / kind) for kind in ("net", "pid"))
