"""Files that the controller and job_submit.lua write, and that a person or a bad disk may change."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import structlog.testing

from controller.base.config import ControllerSettings
from controller.base.errors import JournalError
from controller.base.lease import Lease, is_stale, read_lease, write_lease
from controller.daemon.watchdog.standing_by import HOSTS_FILE, stands_by
from controller.forecast.tracks import Track, Tracks, tracks_of
from controller.profiles.store import ProfileStore, ProfileStoreError
from controller.slurm.user_holds import HoldFolder
from controller.state import journal_rows
from controller.state.journal import Journal, read_originals
from controller.state.journal_rows import RowError
from slurm.errors import MiniClusterError
from slurm.minicluster.record import Record, RecordStore
from slurm.processes import ProcessRef
from tests.fuzz.target import BrokenPromiseError, Target
from tests.unit.controller.examples.build import request
from tests.unit.controller.examples.reports import Agents, Training
from tests.unit.controller.state.test_journal import KEY, full_ledger, preemption

_DECODERS: tuple[Callable[[object], object], ...] = (
    journal_rows.decode_request,
    journal_rows.decode_pin,
    journal_rows.decode_refusal,
    journal_rows.decode_served,
    journal_rows.decode_constraint,
)


def leases() -> list[bytes]:
    """Return leases as the controller writes them."""
    with TemporaryDirectory() as folder:
        found = []
        for partitions in ((), ("dl",), tuple(f"p{number}" for number in range(40))):
            write_lease(Path(folder) / "lease", Lease(1_795_176_869, 30.0, partitions, 998, 16_384, 7))
            found.append((Path(folder) / "lease").read_bytes())
    return found


def read_one_lease(_data: bytes, folder: Path) -> object:
    """Read the lease, which must become stale at some time."""
    lease = read_lease(folder / "lease")
    if not is_stale(lease, 1e12) or (lease is not None and not 0 <= lease.holds_room <= 2**53):
        raise BrokenPromiseError("a lease that never becomes stale, or with a number out of range")
    return lease


def read_holds(data: bytes, folder: Path) -> object:
    """Read a folder of holds, in which any member of slurmctld's group may have written anything."""
    place = folder / "holds"
    rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in data.split(b"\n")[:50]:
        with suppress(OSError, ValueError):  # not a name of a file
            (Path(place) / name.decode("utf-8", "surrogateescape")).touch()
    before = sorted(path.name for path in place.iterdir())
    found = HoldFolder(place).read()
    if sorted(path.name for path in place.iterdir()) != before:
        raise BrokenPromiseError("a reading has changed the folder")
    return found


def rows() -> list[bytes]:
    """Return the texts of the journal's columns."""
    ledger = full_ledger()
    found = [journal_rows.encode(each[KEY]) for each in (ledger.originals, ledger.pins, ledger.refusals, ledger.served)]
    found.append(journal_rows.encode_constraint(ledger.relocations[KEY]))
    found += [journal_rows.encode(request(gpus_per_node=8, min_nodes=4)), _preemption_row()]
    return [text.encode() for text in found]


def _preemption_row() -> str:
    row = asdict(preemption())
    constraint = json.dumps(row.pop("constraint"), default=sorted)
    return json.dumps(
        {**row, "nodes": json.dumps(row["nodes"]), "elsewhere": constraint, "force": int(row["force"])}, default=str
    )


def decode_row(data: bytes, _folder: Path) -> object:
    """Decode a column as each kind of row. Raises RowError if it is none of them."""
    text = data.decode("utf-8", "replace")
    last: RowError | None = None
    done: list[object] = []
    for decode in (*_DECODERS, _as_preemption):
        try:
            done.append(decode(text))
        except RowError as error:
            last = error
    if not done and last is not None:
        raise last
    return done


def _as_preemption(text: object) -> object:
    try:
        row = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise RowError(str(error)[:200]) from error
    if not isinstance(row, dict):
        raise RowError("no row")
    return journal_rows.decode_preemption(row)


def journals() -> list[bytes]:
    """Return journals that were closed well."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state" / "journal.sqlite"
        with closing(Journal(path)) as journal:
            journal.load_ledger()
            journal.found_all()
            journal.save_jobs(full_ledger(), [KEY])
            journal.preemptions.add(preemption())
            journal.begin("pin", {KEY: "n1:6,n3:6"}, 10.0)
        return [path.read_bytes()]


def open_journal(data: bytes, folder: Path) -> object:
    """Open a journal and read all of it. An unusable journal is set aside byte for byte."""
    place = folder / "state"
    rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    path = place / "journal.sqlite"
    path.write_bytes(data)
    try:
        with closing(Journal(path)) as journal:
            ledger = journal.load_ledger()
            list(journal.preemptions.open())
    except JournalError:
        if path.exists() and not _asides(path) and path.read_bytes()[:100] != data[:100]:
            raise BrokenPromiseError("a journal that was refused has changed") from None
        raise
    _require_kept(path, data)
    return ledger


def open_store(data: bytes, folder: Path) -> object:
    """Open a store of profiles and read it."""
    place = folder / "state"
    rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    path = place / "profiles.sqlite"
    path.write_bytes(data)
    with closing(ProfileStore(path)) as store:
        store.highest("n1", "ab")
        store.compute_windows(60.0)
        store.prune(120.0)
    _require_kept(path, data)
    return store


def _asides(path: Path) -> list[Path]:
    return [each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}.") and "-wal" not in each.name]


def _require_kept(path: Path, data: bytes) -> None:
    """Require that one of the files that were set aside is the whole file. SQLite may have put its log of writes into it."""
    asides = _asides(path)
    if asides and not any(len(each.read_bytes()) >= len(data) - 4096 for each in asides):
        raise BrokenPromiseError("what was set aside is not the whole file")


def stores() -> list[bytes]:
    """Return a store with the reports of some agents."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state" / "profiles.sqlite"
        with closing(ProfileStore(path)) as store:
            store.take(Agents().watch([Training(1, ("n1",), 2.0), Training(2, ("n1", "n2"), 3.0)], 0.0, 90.0))
            store.compute_windows(200.0)
        return [path.read_bytes()]


def read_requests(_data: bytes, folder: Path) -> object:
    """Read users' requests out of a journal, as the watchdog does. Never raises."""
    return read_originals(folder / "journal.sqlite", 5.0)


def tracks() -> list[bytes]:
    """Return the memory of start estimates."""
    kept = Tracks()
    for number in range(4):
        kept.follow((str(number), 100, number), Track(100.0, (1.0, 20.0, 300.0), (1.0, 30.0, 400.0), None))
    kept.settle({("0", 100): 130.0}, lambda _key: True, 200.0)
    return [kept.text().encode(), Tracks().text().encode()]


def read_tracks(data: bytes, _folder: Path) -> object:
    """Read the memory of start estimates. Never raises."""
    return tracks_of(data.decode("utf-8", "replace"))


def hosts() -> list[bytes]:
    """Return the machines of slurmctld, as the watchdog keeps them."""
    return [json.dumps([["ctl1", "ctl2"], 0, "/var/spool/slurmctld/heartbeat", 120.0]).encode()]


def read_hosts(_data: bytes, folder: Path) -> object:
    """Read the machines of slurmctld as a watchdog does whose slurm.conf cannot be read. Never raises."""
    settings = ControllerSettings(
        partitions=("dl",), slurm_conf=folder / "missing.conf", runtime_dir=folder, stand_by=True
    )
    with structlog.testing.capture_logs():
        return stands_by(settings, 1_800_000_000.0)


def records() -> list[bytes]:
    """Return the record of a mini-cluster."""
    record = Record("a", "/tmp/a", True, ("n1", "n2"), 8, None, "v1", "10.9.0.0/24", "slurm", "boot", 1e9, "up", True,
                    {"n1": ProcessRef(1, 2)})  # fmt: skip
    return [json.dumps(asdict(record)).encode()]


def read_record(_data: bytes, folder: Path) -> object:
    """Read the record of a mini-cluster."""
    found: Any = RecordStore(folder).read("a")
    return found


CONTROLLER = (
    Target(
        "lease",
        "the lease, which anybody who may write to the folder may forge",
        "text",
        leases,
        read_one_lease,
        file="lease",
        cost=2,
    ),
    Target(
        "hold-files",
        "names of files with users' holds",
        "text",
        lambda: [b"7\n8_1\n.anew", b"12\n12_3\nx y"],
        read_holds,
        cost=5,
    ),
    Target(
        "journal-rows",
        "columns of the journal, of this and other versions",
        "json",
        rows,
        decode_row,
        (RowError,),
        cost=3,
    ),
    Target("journal", "the journal's file", "bytes", journals, open_journal, (JournalError,), cost=60, limit_s=20),
    Target(
        "journal-salvage",
        "requests in a damaged journal, read by the watchdog",
        "bytes",
        journals,
        read_requests,
        file="journal.sqlite",
        cost=12,
        limit_s=10,
    ),
    Target(
        "profile-store", "the store of profiles", "bytes", stores, open_store, (ProfileStoreError,), cost=50, limit_s=20
    ),
    Target("start-tracks", "the memory of start estimates", "json", tracks, read_tracks, cost=2),
    Target(
        "slurmctld-hosts",
        "the machines of slurmctld, kept by the watchdog",
        "json",
        hosts,
        read_hosts,
        file=HOSTS_FILE,
        cost=5,
    ),
    Target(
        "minicluster-record",
        "records of mini-clusters",
        "json",
        records,
        read_record,
        (MiniClusterError,),
        file="a.json",
        cost=2,
    ),
)
