"""The namespaces of a host, as slurmd finds them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.minicluster.host import cgroups, namespaces
from slurm.processes import children

_SCRIPT = Path(namespaces.__file__).with_name("node-init.sh")
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_INTO_CGROUP = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
_NAMESPACES = [
    "unshare",
    "--uts",
    "--mount",
    "--pid",
    "--ipc",
    "--cgroup",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--",
]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of v2."""
    root = next((each for each in _ROOTS if (each / "cgroup.controllers").exists()), None)
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no hierarchy of v2 that this user may write")
    folder = root / f"headway-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    cgroups.remove([folder])


def test_a_host_with_cgroups_of_v2_shows_only_its_own(cgroup: Path, tmp_path: Path) -> None:
    """slurmd of 24.11 ends where the first cgroup2 in /proc/1/mountinfo is that of the machine, with "mismatch found"."""
    for folder in ("etc", "run/sys.n1"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("etc/hosts", "etc/hostname.n1"):
        (tmp_path / file).write_text("n1\n")
    words = ("sh", "-c", _INTO_CGROUP, str(cgroup), *_NAMESPACES, "sh", str(_SCRIPT), "n1", str(tmp_path), "v2")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
            init = next(iter(children(holder.pid)))
            mounts = Path(f"/proc/{init}/mountinfo").read_text().splitlines()
        finally:
            holder.kill()
    assert [line.split()[4] for line in mounts if " - cgroup2 " in line] == ["/sys/fs/cgroup"]
    assert not [line for line in mounts if " - cgroup " in line]
