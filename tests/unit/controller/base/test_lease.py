"""The heartbeat file."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.base.lease import (
    Lease,
    forget_lease_of_another_user,
    is_stale,
    parse_lease,
    read_lease,
    wake_room,
    write_lease,
)
from controller.base.partition_size import MOST_KINDS, NodeKind, PartitionSize

LEASE = Lease(time_s=1_000_000, stale_after_s=30, partitions=("dl", "gpu"), controller_uid=64030, wake_room_bytes=65536)


def test_a_lease_that_was_written_is_read(tmp_path: Path) -> None:
    for lease in (LEASE, replace(LEASE, nice_keeps_holds=True)):
        write_lease(tmp_path / "lease", lease)

        assert read_lease(tmp_path / "lease") == lease


def test_the_text_is_what_the_lua_script_and_the_hooks_read(tmp_path: Path) -> None:
    write_lease(tmp_path / "lease", replace(LEASE, stale_after_s=2.5))

    assert (tmp_path / "lease").read_text() == (
        "time=1000000\nstale_after=2.5\npartitions=dl,gpu\ncontroller_uid=64030\nwake_room_bytes=65536\n"
        "holds_room=1000\nnice_keeps_holds=0\nsizes=\nkinds=\n"
    )


def test_a_controller_of_another_user_does_not_work_by_the_lease_of_the_one_before(tmp_path: Path) -> None:
    forget_lease_of_another_user(tmp_path / "lease", 0)  # there is none
    write_lease(tmp_path / "lease", LEASE)

    forget_lease_of_another_user(tmp_path / "lease", LEASE.controller_uid)
    assert read_lease(tmp_path / "lease") == LEASE
    forget_lease_of_another_user(tmp_path / "lease", 0)
    assert not (tmp_path / "lease").exists()


def test_the_sizes_of_partitions_are_one_line(tmp_path: Path) -> None:
    sizes = (
        PartitionSize("dl", 32, 8, 64, 256_000, (("a100", 4), ("1g.10gb", 2))),
        PartitionSize("cpu", 0, 0, 32, 64_000),
    )
    write_lease(tmp_path / "lease", replace(LEASE, sizes=sizes))

    assert "\nsizes=dl:32:8:64:256000:a100=4+1g.10gb=2,cpu:0:0:32:64000:\n" in (tmp_path / "lease").read_text()


def test_the_kinds_of_nodes_are_one_line(tmp_path: Path) -> None:
    mixed = (NodeKind(4, 8, 64, 256_000, (("a100", 4), ("h100", 4))), NodeKind(2, 0, 128, 512_000))
    many = tuple(NodeKind(1, 8, 64, mib) for mib in range(MOST_KINDS + 1))
    sizes = (
        PartitionSize("many", 8, 8, 64, 256_000, kinds=many),
        PartitionSize("dl", 32, 8, 128, 512_000, kinds=mixed),
        PartitionSize("one", 8, 8, 64, 256_000, kinds=(NodeKind(1, 8, 64, 256_000),)),
    )
    write_lease(tmp_path / "lease", replace(LEASE, sizes=sizes))

    text = (tmp_path / "lease").read_text()
    assert "\nkinds=dl:4:8:64:256000:a100=4+h100=4,dl:2:0:128:512000:,one:1:8:64:256000:\n" in text


def test_kinds_that_take_too_much_room_are_left_out_by_partition(tmp_path: Path) -> None:
    kinds = tuple(NodeKind(1, 8, 64, 256_000 + index) for index in range(MOST_KINDS))
    sizes = tuple(PartitionSize(f"partition{number}", 8, 8, 64, 256_000, kinds=kinds) for number in range(500))
    write_lease(tmp_path / "lease", replace(LEASE, partitions=("partition0",), sizes=sizes))

    text = (tmp_path / "lease").read_text()
    shown = text.partition("kinds=")[2].strip().split(",")
    assert len(text) < 65536
    assert len(shown) > 500
    assert len(shown) % MOST_KINDS == 0


@pytest.mark.parametrize("wrong", [{"num_nodes": -1}, {"cpus": 2**60}, {"gpus_by_type": (("a:b", 1),)}])
def test_a_kind_that_lua_could_not_read_is_refused(wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {"num_nodes": 1, "gpus": 8, "cpus": 64, "memory_mib": 256_000}
    with pytest.raises(ValueError, match=r"range|types"):
        NodeKind(**(values | wrong))


@pytest.mark.parametrize("wrong", [{"gpus": -1}, {"memory_mib": 2**60}, {"gpus_by_type": (("a b", 1),)}])
def test_a_size_that_lua_could_not_read_is_refused(wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {"name": "dl", "all_gpus": 8, "gpus": 8, "cpus": 64, "memory_mib": 256_000}
    with pytest.raises(ValueError, match=r"range|types"):
        PartitionSize(**(values | wrong))


def test_slurmctlds_user_can_read_the_lease_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_lease(tmp_path / "lease", LEASE)
    finally:
        os.umask(before)

    assert (tmp_path / "lease").stat().st_mode & 0o777 == 0o644


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "lease").symlink_to(victim)

    assert read_lease(tmp_path / "lease") is None
    write_lease(tmp_path / "lease", LEASE)

    assert victim.read_text() == "precious"
    assert read_lease(tmp_path / "lease") == LEASE


def test_a_reader_never_sees_half_a_lease(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    write_lease(path, LEASE)
    stop = threading.Event()

    def renew() -> None:
        beat = 0
        while not stop.is_set():
            beat += 1
            write_lease(path, replace(LEASE, time_s=beat))

    writer = threading.Thread(target=renew)
    writer.start()
    try:
        assert all(read_lease(path) is not None for _ in range(300))
    finally:
        stop.set()
        writer.join()
    assert [entry.name for entry in tmp_path.iterdir()] == ["lease"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no lease",
        "time=1\nstale_after=30\npartitions=dl\n",
        "time=x\nstale_after=30\npartitions=dl\ncontroller_uid=0\n",
        "time=1\nstale_after=0\npartitions=dl\ncontroller_uid=0\n",
        "time=1\nstale_after=30\npartitions=d l\ncontroller_uid=0\n",
    ],
)
def test_invalid_text_is_no_lease(text: str) -> None:
    assert parse_lease(text) is None


def test_keys_of_later_versions_are_ignored() -> None:
    lease = parse_lease("time=1\nstale_after=30\npartitions=dl\ncontroller_uid=0\ncolour=blue\n")

    assert lease == Lease(1, 30, ("dl",), 0, wake_room_bytes=0)


def test_a_missing_lease_a_folder_and_a_pipe_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert [read_lease(path) for path in (tmp_path / "absent", tmp_path, tmp_path / "pipe")] == [None] * 3


@pytest.mark.parametrize(
    ("age_s", "stale"), [(0, False), (30, False), (31, True), (-30, False), (-31, True), (-1e9, True)]
)
def test_a_lease_too_old_or_from_the_future_is_stale(age_s: float, stale: bool) -> None:
    assert is_stale(LEASE, LEASE.time_s + age_s) is stale


def test_no_lease_is_stale() -> None:
    assert is_stale(None, 0)


@pytest.mark.parametrize(("field", "value"), [("stale_after_s", 0), ("partitions", ("a,b",)), ("partitions", ("",))])
def test_a_lease_that_could_not_be_read_again_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"stale_after_s|partition"):
        replace(LEASE, **{field: value})  # type: ignore[arg-type]


def test_the_room_of_a_pipe_is_its_size_without_unread_bytes() -> None:
    reader, writer = os.pipe()
    try:
        empty = wake_room(reader)
        os.write(writer, b"submit\n")
        assert (empty >= 4096, wake_room(reader)) == (True, empty - 7)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    "line",
    [
        "stale_after=nan", "stale_after=inf", "stale_after=1e300", "stale_after=-inf", "stale_after=1e6",
        "time=" + "9" * 400, "time=-1", "time=" + "9" * 5000, "controller_uid=-7", "wake_room_bytes=" + "9" * 30,
    ],
)  # fmt: skip
def test_a_lease_that_would_never_be_stale_is_invalid(line: str) -> None:
    key = line.partition("=")[0]
    text = "\n".join([each for each in _TEXT.splitlines() if not each.startswith(f"{key}=")] + [line])

    assert parse_lease(_TEXT) == LEASE
    assert is_stale(parse_lease(text), 1_000_001.0)


_TEXT = "time=1000000\nstale_after=30\npartitions=dl,gpu\ncontroller_uid=64030\nwake_room_bytes=65536\n"
