"""Checkpoints in a Hadoop file system that is down, does not answer, or loses connections at the worst moments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("requests")

import traceback

from headway_job.checkpoints.stores.local import Receipt
from headway_job.checkpoints.stores.remote import RemoteStore

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.stores.webhdfs import WebHdfs
from tests.unit.headway_job.checkpoints.stores.wire import Wire

STEPS = 12
PLACE = "/runs/run"


@pytest.fixture
def hdfs() -> Iterator[WebHdfs]:
    server = WebHdfs()
    yield server
    server.close()


def complete(hdfs: WebHdfs) -> list[int]:
    """Return the steps of the checkpoints in the folder."""
    return [
        int(name.split("-")[1])
        for name in hdfs.names_in(PLACE)
        if name.startswith("step-") and f"{PLACE}/{name}/manifest.json" in hdfs.files
    ]


def test_a_run_goes_on_from_hdfs(fork_server: ForkServer, hdfs: WebHdfs, tmp_path: Path) -> None:
    url = f"webhdfs://somebody@127.0.0.1:{hdfs.port}{PLACE}"
    whole = fork_server.run("train", 2, folder=tmp_path / "whole", steps=STEPS)

    first = fork_server.run(
        "stores.programs.train", 2, kind="hdfs", url=url, steps=STEPS, end_at=10, options={"every_steps": 3}
    )
    second = fork_server.run("stores.programs.train", 2, kind="hdfs", url=url, steps=STEPS)

    assert first.ends == second.ends == [0, 0], second.logs
    assert second.reported("start") == first.reported("saved") == 9
    for rank in (0, 1):
        for step, loss in second.losses(rank).items():
            assert loss == pytest.approx(whole.losses(rank)[step], abs=1e-6)
    assert complete(hdfs) == [6, 9]
    assert len(second.losses()) == STEPS - 9
    assert not [name for name in hdfs.files if name.endswith(".part")]


def test_a_file_of_hdfs_has_its_name_once_it_is_whole_and_the_manifest_comes_last(
    hdfs: WebHdfs, fork_server: ForkServer
) -> None:
    url = f"webhdfs://somebody@127.0.0.1:{hdfs.port}{PLACE}"
    fork_server.run("stores.programs.train", 2, kind="hdfs", url=url, steps=2, options={"every_steps": 2})

    changes = [(what, path.rsplit("/", 1)[1]) for what, path in hdfs.asked if what in ("append", "rename")]
    assert {path for what, path in changes if what == "append"} == {
        "rank-0.safetensors.part", "rank-1.safetensors.part", "manifest.json.part"
    }  # fmt: skip
    assert changes[-1] == ("rename", "manifest.json.part")
    renamed = [path for what, path in changes if what == "rename"]
    assert sorted(renamed[:2]) == ["rank-0.safetensors.part", "rank-1.safetensors.part"]


def test_a_rename_that_did_nothing_is_noticed(hdfs: WebHdfs) -> None:
    store = RemoteStore(f"webhdfs://127.0.0.1:{hdfs.port}{PLACE}", pauses_s=())
    store.make("step-000000001-0001")
    hdfs.refusing_renames = True

    with pytest.raises(OSError, match="does not exist"):
        store.write("step-000000001-0001", "rank-0.safetensors", lambda file: file.write(b"state") and None)


@pytest.mark.parametrize("count", [0, 1500, 4500])
def test_a_lost_connection_to_the_store_fails_only_that_save(
    fork_server: ForkServer, hdfs: WebHdfs, count: int
) -> None:
    ended = fork_server.run("stores.programs.cut_in_a_save", 2, kind="hdfs", port=hdfs.port, bytes=count)

    assert ended.ends == [0, 0], ended.logs
    for rank in (0, 1):
        assert [ended.reported(when, rank) for when in ("before", "cut", "after")] == [2, 2, 6]
    assert "rank 1 could not write" in ended.logs[0]
    assert complete(hdfs) == [2, 6]


@pytest.mark.parametrize("operation", ["append", "rename"])
def test_without_a_complete_manifest_there_is_no_checkpoint(
    fork_server: ForkServer, hdfs: WebHdfs, operation: str
) -> None:
    url = f"webhdfs://somebody@127.0.0.1:{hdfs.port}{PLACE}"
    seen: list[str] = []

    def drops(what: str, path: str) -> bool:
        seen.extend([path] if what == operation and "manifest.json" in path else [])
        return "-000000006-" in path and seen[-1:] == [path]

    hdfs.drops = drops
    first = fork_server.run(
        "stores.programs.train", 2, kind="hdfs", url=url, steps=9, end_at=8, options={"every_steps": 3}
    )
    assert first.reported("saved") == 3
    second = fork_server.run("stores.programs.train", 2, kind="hdfs", url=url, steps=9, options={"every_steps": 9})

    assert first.ends == second.ends == [0, 0]
    assert seen
    assert "There is no checkpoint of step 6" in first.logs[0]
    assert second.reported("start") == 3
    assert complete(hdfs) == [3, 9]


def test_a_store_that_stops_answering_does_not_stop_the_training(fork_server: ForkServer, hdfs: WebHdfs) -> None:
    ended = fork_server.run("stores.programs.dead_in_a_save", kind="hdfs", port=hdfs.port)

    assert ended.ends == [0], ended.logs
    assert ended.reported("steps") >= 1
    assert ended.reported("silent") == 2
    assert "no answer for 0.5 s" in ended.logs[0]
    assert ended.reported("after") == ended.reported("last")


@pytest.mark.parametrize("most_s", [0.2, 600])
def test_a_dead_store_does_not_delay_the_end_of_the_program(
    fork_server: ForkServer, hdfs: WebHdfs, most_s: float
) -> None:
    ended = fork_server.run("stores.programs.dead_at_the_end", 2, kind="hdfs", port=hdfs.port, most_s=most_s)

    assert ended.ends == [0, 0], ended.logs
    assert ended.reported("closed") == 2
    assert ("will not be complete" if most_s < 1 else "no answer for 0.5 s") in ended.logs[0]


@pytest.mark.parametrize("how", ["silent", "cut"])
def test_a_run_does_not_begin_at_step_0_while_the_store_is_down(
    fork_server: ForkServer, hdfs: WebHdfs, how: str
) -> None:
    ended = fork_server.run("stores.programs.away_at_the_start", 2, kind="hdfs", port=hdfs.port, how=how)

    assert ended.ends == [1, 1]
    assert "cannot be listed" in ended.logs[0]
    assert "does not begin at step 0" in ended.logs[1]
    assert hdfs.asked == []


def test_no_answer_is_no_empty_folder(hdfs: WebHdfs) -> None:
    wire = Wire(hdfs.port)
    store = RemoteStore(f"webhdfs://127.0.0.1:{wire.port}{PLACE}", max_silence_s=60, pauses_s=(0.01,))
    store.make("step-000000001-0001")
    receipt = store.write("step-000000001-0001", "manifest.json", lambda file: file.write(b"{}") and None)
    wire.cut()

    assert receipt == Receipt(2, receipt.digest)
    with pytest.raises(OSError, match="Connection refused"):
        store.has("step-000000001-0001", "manifest.json")
    with pytest.raises(OSError, match="Connection refused"):
        store.folders()


def test_no_secret_of_a_url_is_shown(hdfs: WebHdfs) -> None:
    url = f"webhdfs://somebody:hunter22@127.0.0.1:{hdfs.port}{PLACE}"
    store = RemoteStore(url, pauses_s=())
    store._system.pars["delegation"] = "tokentokentoken"
    hdfs.close()
    store._system.session.close()

    with pytest.raises(OSError, match="Connection refused") as raised:
        store.folders()

    shown = store.where + "".join(traceback.format_exception(raised.value))
    assert "hunter22" not in shown
    assert "tokentokentoken" not in shown
    assert "127.0.0.1" in shown
