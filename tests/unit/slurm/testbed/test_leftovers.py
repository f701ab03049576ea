"""Services end with a process that is killed, and the next one removes its clusters and folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm.minicluster import teardown
from slurm.minicluster.record import Record, RecordStore, boot_id
from slurm.processes import ProcessRef
from slurm.testbed.leftovers import has_mounts, remove_leftovers
from slurm.testbed.programs import tied_to_us

ENDED = 4_194_305
"""The kernel gives no pid above 4,194,304."""


def record(name: str, directory: str, *, detached: bool = False) -> Record:
    """Return the record of a cluster without hosts."""
    values = (True, (), 0, None, "none", "10.77.5.0/24", "root", boot_id(), 1.0)
    return Record(name, directory, *values, detached=detached)  # type: ignore[arg-type]


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
        store.write(record(name, str(tmp_path / name)))

    remove_leftovers("racks", folder, store)

    assert store.names() == sorted([running, other, "racks"])
    assert {path.name for path in folder.iterdir()} == {f"headway-{name}-a1b2_c3d" for name in store.names()}


def test_a_cluster_that_is_taken_down_by_another_process_is_left_to_it(tmp_path: Path) -> None:
    store, name = RecordStore(tmp_path), f"racks-{ENDED}-1"
    store.write(record(name, str(tmp_path / name)))
    lock = store.lock(name)
    remove_leftovers("racks", tmp_path, store)
    assert store.names() == [name]
    lock.release(remove=True)


def test_a_cluster_that_was_left_up_stays_with_its_folder(tmp_path: Path) -> None:
    store, name = RecordStore(tmp_path / "records"), f"racks-{ENDED}-1"
    (tmp_path / "records").mkdir()
    (tmp_path / f"headway-{name}-a1b2_c3d").mkdir()
    store.write(record(name, str(tmp_path / name), detached=True))
    remove_leftovers("racks", tmp_path, store)
    assert store.names() == [name]
    assert (tmp_path / f"headway-{name}-a1b2_c3d").exists()


def test_a_cluster_that_cannot_be_removed_is_logged_and_keeps_no_caller_from_its_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given records of which one is none, and one names a folder with a marker that is no file
    store, names = RecordStore(tmp_path / "records"), [f"racks-{ENDED}-{number}" for number in (1, 2, 3)]
    (tmp_path / names[1] / teardown.MARKER).mkdir(parents=True)
    (tmp_path / "records").mkdir()
    for name in names:
        store.write(record(name, str(tmp_path / name)))
    (tmp_path / "records" / f"{names[0]}.json").write_text("{}")

    remove_leftovers("racks", tmp_path, store)

    assert store.names() == names[:2]
    assert [names[0] in caplog.text, names[1] in caplog.text, names[2] in caplog.text] == [True, True, False]


def test_mounts_with_names_of_any_bytes_are_no_obstacle(tmp_path: Path) -> None:
    folder, mounts = tmp_path / "headway", tmp_path / "mounts"
    mounts.write_bytes(b"none /m\xfcnt tmpfs rw 0 0\n//server/a\x85b /c\xa0d cifs rw 0 0\n")
    assert not has_mounts(folder, mounts)
    mounts.write_bytes(mounts.read_bytes() + b"none " + os.fsencode(folder / "below") + b" tmpfs rw 0 0\n")
    assert has_mounts(folder, mounts)
