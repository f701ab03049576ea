"""Records and locks: what makes a clean-up after a crash possible, and safe."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm.errors import AlreadyRunningError, CommandError, MiniClusterError, PrerequisiteError
from slurm.minicluster import teardown
from slurm.minicluster.host import cgroups
from slurm.minicluster.host.accounting import bootstrap_sql, sql_files
from slurm.minicluster.host.files import ACCOUNTING_DATABASE
from slurm.minicluster.host.namespaces import tail
from slurm.minicluster.record import Record, RecordStore, boot_id
from slurm.processes import ProcessRef, run


def record(**changes: object) -> Record:
    values: dict[str, object] = {
        "name": "demo",
        "directory": "/nowhere",
        "made_directory": True,
        "nodes": ("n1", "n2"),
        "gpus": 8,
        "rate": "1gbit",
        "cgroup": "none",
        "subnet": "10.77.5.0/24",
        "slurm_user": "slurm",
        "boot_id": boot_id(),
        "booted_at_s": 1.0,
    }
    return Record(**(values | changes))  # type: ignore[arg-type]


def me() -> ProcessRef:
    ref = ProcessRef.of(os.getpid())
    assert ref is not None
    return ref


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    written = record(holders={"n1": ProcessRef(5, 6)}, phase="up")
    store.write(written)
    assert store.read("demo") == written
    assert store.names() == ["demo"]
    store.remove("demo")
    assert store.read("demo") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"holders": {}, "nodes": [], "surprise": 1}'])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "demo.json").write_text(text)
    with pytest.raises(MiniClusterError, match=r"demo\.json: not the record of a mini-cluster"):
        RecordStore(tmp_path).read("demo")


def test_a_name_has_one_owner_and_the_refusal_says_who(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    lock = store.lock("demo")
    with pytest.raises(AlreadyRunningError, match=rf"process {os.getpid()} \("):
        store.lock("demo")
    assert str(os.getpid()) in (store.owner("demo") or "")
    lock.release(remove=True)
    assert store.owner("demo") is None
    store.lock("demo").release(remove=True)
    store.tidy()
    assert not tmp_path.exists()


def test_clusters_begin_while_others_remove_the_folder(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "records")

    def begin_and_end(name: str) -> None:
        for _ in range(100):
            store.lock(name).release(remove=True)
            store.tidy()
            assert store.names() == []

    with ThreadPoolExecutor() as processes:  # a lock is of its open file, as it is between processes
        for each in [processes.submit(begin_and_end, name) for name in ("a", "b", "c", "d")]:
            each.result(timeout=60)
    assert not (tmp_path / "records").exists()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"{tmp_path}/file"):
        RecordStore(tmp_path / "file" / "records").lock("demo")


def test_a_name_is_free_again_when_its_owner_is_killed(tmp_path: Path) -> None:
    program = (
        "import time\nfrom pathlib import Path\nfrom slurm.minicluster.record import RecordStore\n"
        f"lock = RecordStore(Path({str(tmp_path)!r})).lock('demo')\nprint('held', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        assert RecordStore(tmp_path).owner("demo") is not None
        owner.kill()
    RecordStore(tmp_path).lock("demo").release(remove=True)


def test_a_process_with_a_used_again_pid_is_another_process() -> None:
    assert me().alive()
    other = ProcessRef(os.getpid(), me().start_ticks - 1)
    assert not other.alive()
    assert not record(holders={"n1": other}).has_running_host()
    assert record(holders={"n1": me()}).has_running_host()
    assert not record(holders={"n1": me()}, boot_id="before a reboot").has_running_host()


def test_a_zombie_counts_as_ended() -> None:
    with subprocess.Popen(["true"]) as child:
        ref = ProcessRef.of(child.pid)
        assert ref is None or ref.wait_gone(60)


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    limit_s = 1
    while not (pid_file.exists() and pid_file.read_text()):  # it must have begun by then
        with pytest.raises(CommandError, match=f"no answer in {limit_s} s"):
            run("sh", "-c", 'sleep 60 & echo $! >"$1"; wait', "sh", str(pid_file), timeout_s=limit_s)
        limit_s *= 2
    child = ProcessRef.of(int(pid_file.read_text()))
    assert child is None or child.wait_gone(60)


def test_failures_carry_what_the_program_said() -> None:
    with pytest.raises(CommandError, match="failed with status 3: oh no"):
        run("sh", "-c", "echo oh no >&2; exit 3")
    with pytest.raises(PrerequisiteError, match="no-such-program"):
        run("no-such-program")


def test_only_folders_with_the_marker_are_emptied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    teardown.remove_files(tmp_path, "demo", whole=True)
    assert (tmp_path / "file").exists()
    (tmp_path / teardown.MARKER).touch()  # as of an older version, which named no cluster
    (tmp_path / "link").symlink_to("/")
    teardown.remove_files(tmp_path, "demo", whole=False)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_does_not_delete_the_files_of_another_in_its_folder(tmp_path: Path) -> None:
    folder, store = tmp_path / "files", RecordStore(tmp_path)
    folder.mkdir()
    teardown.write_marker(folder, "a")
    (folder / "slurm.conf").touch()
    teardown.take_down(record(name="b", directory=str(folder), nodes=()), store)
    assert (folder / "slurm.conf").exists()
    teardown.take_down(record(name="a", directory=str(folder), nodes=()), store)
    assert not folder.exists()


@pytest.mark.parametrize("place", [".", "below/it", "..", "../link", "../link/below"])
def test_a_folder_that_another_cluster_uses_is_refused(place: str) -> None:
    with tempfile.TemporaryDirectory() as outer:  # pytest's own are closed to Slurm's user
        Path(outer).chmod(0o755)
        theirs = Path(outer) / "theirs"
        theirs.mkdir()
        theirs.with_name("link").symlink_to(theirs)
        teardown.write_marker(theirs, "a")
        with pytest.raises(MiniClusterError, match=r"mini-cluster a has its files in .*down --name a"):
            teardown.prepare_directory(
                Path(os.path.normpath(theirs / place)), [record(name="a", directory=str(theirs))]
            )
        assert teardown.prepare_directory(theirs.with_name("theirs2"), [record(name="a", directory=str(theirs))])
        assert not teardown.prepare_directory(theirs)


@pytest.mark.parametrize("place", [".", "below/it"])
def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MiniClusterError, match=rf"{tmp_path}/file is not a folder; choose another --dir"):
        teardown.prepare_directory(tmp_path / "file" / place)


def own_cgroups(folder: Path, *hierarchies: str) -> Path:
    """A /proc/self/cgroup."""
    path = folder / "self"
    path.write_text("".join(f"{hierarchy}:/some.slice\n" for hierarchy in hierarchies))
    return path


def cgroup_tree(root: Path, kind: str) -> Path:
    if kind == "v1":
        for controller in ("freezer", "devices"):
            (root / controller).mkdir()
            (root / controller / "tasks").touch()
    elif kind == "v2":
        (root / "cgroup.controllers").touch()
    return root


@pytest.mark.parametrize(("kind", "auto"), [("v1", "v1"), ("v2", "v2"), ("empty", "none")])
def test_auto_takes_the_cgroups_that_are_there(tmp_path: Path, kind: str, auto: str) -> None:
    root = cgroup_tree(tmp_path, kind)
    only_v2 = own_cgroups(tmp_path, "0:")
    assert cgroups.decide("auto", root, only_v2) == auto
    assert cgroups.decide("none", root, only_v2) == "none"


def test_a_container_with_v2_on_a_host_with_both_is_taken_for_what_slurm_takes_it(tmp_path: Path) -> None:
    root, hybrid = cgroup_tree(tmp_path, "v2"), own_cgroups(tmp_path, "4:memory", "0:")
    assert cgroups.decide("auto", root, hybrid) == "none"
    with pytest.raises(PrerequisiteError, match=r"cgroup v2: .*hybrid"):
        cgroups.decide("v2", root, hybrid)


def test_asking_for_cgroups_that_are_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"cgroup v2: .*hybrid"):
        cgroups.decide("v2", cgroup_tree(tmp_path, "v1"))
    with pytest.raises(PrerequisiteError, match=r"cgroup v1: .* is no v1 hierarchy"):
        cgroups.decide("v1", tmp_path / "other")


@pytest.mark.parametrize("prefix", ["mysql_", "mariadb_"])
def test_the_tables_of_mariadb_are_found_by_the_names_of_each_release(tmp_path: Path, prefix: str) -> None:
    names = [f"{prefix}{name}.sql" for name in ("system_tables", "performance_tables", "system_tables_data")]
    with pytest.raises(PrerequisiteError, match="mariadb-server-core"):
        sql_files([tmp_path / "none", tmp_path])
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in sql_files([tmp_path / "none", tmp_path])] == names


def test_slurmdbd_finds_its_database_at_its_first_connection() -> None:
    """With MariaDB 11.8.9, a handle whose first connection failed gets no results, and slurmdbd ends."""
    lines = bootstrap_sql("slurm").splitlines()
    assert lines.index(f"create database {ACCOUNTING_DATABASE};") < lines.index("use mysql;")


def test_the_tail_of_a_log_is_what_was_fatal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "does not exist" in tail(log)
    log.write_text("fine\nerror: small\nfatal: big\nfine\n")
    assert tail(log).endswith("fatal: big")
    assert "error: small" not in tail(log)
