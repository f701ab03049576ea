"""Services end with a process that is killed, and the next one removes its clusters and folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm.minicluster.record import Record, RecordStore, boot_id
from slurm.processes import ProcessRef
from slurm.testbed.leftovers import remove_leftovers
from slurm.testbed.programs import tied_to_us

ENDED = 4_194_305
"""The kernel gives no pid above 4,194,304."""


@pytest.mark.skipif(not tied_to_us(), reason="util-linux is not installed")
def test_services_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom slurm.testbed.installation import Installation\n"
        "headway = Installation(Path(sys.argv[1]))\nheadway.start('service', ['sleep', '600'])\n"
        "print(headway.processes['service'].pid, flush=True)\nsys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        service = ProcessRef.of(int(owner.stdout.readline()))
        owner.kill()
    assert service is not None
    assert service.wait_gone(60)


def test_only_what_belongs_to_ended_processes_is_removed(tmp_path: Path) -> None:
    folder, store = tmp_path / "run", RecordStore(tmp_path / "records")
    for path in (folder, tmp_path / "records"):
        path.mkdir()
    ended, running, other = f"racks-{ENDED}-1", f"racks-{os.getpid()}-1", f"elastic-{ENDED}-1"
    for name in (ended, running, other, "racks"):
        (folder / f"headway-{name}-a1b2_c3d").mkdir()
        (folder / f"headway-{name}-a1b2_c3d" / "controller.log").touch()
        store.write(
            Record(name, str(tmp_path / name), True, (), 0, None, "none", "10.77.5.0/24", "root", boot_id(), 1.0)
        )

    remove_leftovers("racks", folder, store)

    assert store.names() == sorted([running, other, "racks"])
    assert {path.name for path in folder.iterdir()} == {f"headway-{name}-a1b2_c3d" for name in store.names()}


def test_a_cluster_that_is_taken_down_by_another_process_is_left_to_it(tmp_path: Path) -> None:
    store, name = RecordStore(tmp_path), f"racks-{ENDED}-1"
    store.write(Record(name, str(tmp_path / name), True, (), 0, None, "none", "10.77.5.0/24", "root", boot_id(), 1.0))
    lock = store.lock(name)
    remove_leftovers("racks", tmp_path, store)
    assert store.names() == [name]
    lock.release(remove=True)
