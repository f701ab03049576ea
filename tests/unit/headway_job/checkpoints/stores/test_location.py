"""The default folder of checkpoints, and stores other than a file system."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from headway_job.checkpoints.catalog import Catalog, Manifest, folder_name, rank_file
from headway_job.checkpoints.errors import Damaged, Refused
from headway_job.checkpoints.stores.local import LocalStore, Receipt
from headway_job.checkpoints.stores.location import array_folder, key, older_key, open_store
from headway_job.checkpoints.stores.remote import RemoteStore

JOB = {"SLURM_CLUSTER_NAME": "blue", "SLURM_JOB_NAME": "my net", "SLURM_JOB_ID": "17"}


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*JOB, *ARRAY, "HEADWAY_CHECKPOINT_DIR", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


def test_no_two_jobs_share_a_place_and_a_requeued_one_finds_it_again() -> None:
    array = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_JOB_ID": "18"}
    keys = [
        key(JOB, "train"),
        key({**JOB, "SLURM_JOB_ID": "18"}, "train"),
        key({**JOB, "SLURM_CLUSTER_NAME": "red"}, "train"),
        key({**JOB, **array, "SLURM_ARRAY_TASK_ID": "1"}, "train"),
        key({**JOB, **array, "SLURM_ARRAY_TASK_ID": "2"}, "train"),
        key(JOB, "evaluate"),
    ]

    assert len(set(keys)) == len(keys)
    assert keys[0] == "blue-17-train" == key({**JOB, "SLURM_RESTART_COUNT": "3", "SLURM_JOB_NAME": "renamed"}, "train")
    assert keys[3] == "blue-17_1.18-train"


ARRAY = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1"}


def test_a_job_that_a_task_of_an_array_submits_has_a_folder_of_its_own() -> None:
    """It inherits the variables of the array, as those of sbatch are exported by default; its own id is new."""
    task = {**JOB, **ARRAY, "SLURM_JOB_ID": "19"}
    assert len({key({**task, "SLURM_JOB_ID": job}, "train") for job in ("19", "25", "26")}) == 3
    assert key({**task, "SLURM_RESTART_COUNT": "2"}, "train") == key(task, "train")


@pytest.mark.parametrize("store", ["{}", "memory://{}"])
@pytest.mark.parametrize("older", ["blue-17_1-train_gpt", "blue-17_1-train_gpt_5838f81d", "blue-my_net-17_1-train_gpt"])
def test_a_task_of_an_array_that_began_with_an_earlier_version_finds_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: str, older: str
) -> None:
    if store.startswith("memory"):
        pytest.importorskip("fsspec")
    base = store.format(tmp_path)
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", base)
    for variable, value in {**JOB, **ARRAY, "SLURM_JOB_ID": "19"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)

    def filled(folder: str) -> None:
        within = RemoteStore(f"{base}/{folder}") if store.startswith("memory") else LocalStore(f"{tmp_path}/{folder}")
        within.make(folder_name(1, 1))
        within.write(folder_name(1, 1), rank_file(0), lambda file: file.write(b"state") and None)

    def found() -> str:
        place = Path(open_store(None, "train-gpt", single_rank=True).where)
        if place.exists() and not list(place.iterdir()):
            place.rmdir()  # it was created just now
        return place.name

    filled(older)
    own = "blue-17_1.19-train_gpt_5838f81d"
    assert found() == own, "a job that begins takes no folder of another one"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert found() == older
    assert [f"rename the folder to {own}" in row.getMessage() for row in caplog.records] == [True]
    filled(own)
    assert found() == own


@pytest.mark.parametrize("store", ["{}", "memory://{}"])
@pytest.mark.parametrize("older", ["blue-17_1-train", "blue-my_net-17_1-train"])
def test_a_job_that_inherits_the_count_of_starts_does_not_use_the_older_folder_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, older: str
) -> None:
    if store.startswith("memory"):
        pytest.importorskip("fsspec")
    base = store.format(tmp_path)
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", base)
    for variable, value in {**JOB, **ARRAY, "SLURM_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(variable, value)
    within = RemoteStore(f"{base}/{older}") if store.startswith("memory") else LocalStore(f"{tmp_path}/{older}")
    within.make(folder_name(1, 1))
    within.write(folder_name(1, 1), rank_file(0), lambda file: file.write(b"state") and None)

    def found(job: str) -> str:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        return Path(open_store(None, "train", single_rank=True).where).name

    assert [found(job) for job in ("19", "25", "19", "25")] == [older, "blue-17_1.25-train"] * 2
    assert Catalog(within, 1).next_number() == 2


def test_the_folder_of_a_task_of_an_array_is_found_by_the_ids_that_a_user_knows() -> None:
    names = [
        "blue-17_1.190-train",
        "blue-17_1.25-train",
        "blue-17_1.30-eval",
        "blue-17_2.3-train",
        "red-17_1.4-train",
        "blue-17-train",
    ]

    def of(job: str, name: str = "train") -> str | None:
        return array_folder({"SLURM_CLUSTER_NAME": "blue", "SLURM_JOB_ID": job}, name, names)

    assert of("17_1") == "blue-17_1.25-train", "the others are of jobs that the task has submitted"
    assert of("190") == "blue-17_1.190-train"
    assert of("30", "eval") == "blue-17_1.30-eval"
    assert of("17_3") is of("17") is of("19") is of("4") is None


def test_a_name_cannot_leave_the_folder() -> None:
    assert "/" not in key({**JOB, "SLURM_JOB_NAME": "../../etc"}, "..")
    assert not key({}, "../x").startswith(".")
    assert key({}, "") == "run"


LONG = "resnet50-imagenet1k-lr0.1-wd0.0001-momentum0.9-warmup5-epochs90-seed"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("实验一", "实验二"),
        (LONG + "1", LONG + "2"),
        ("lr=1", "lr+1"),
        ("lr_1", "lr=1"),
        ("..", "..."),
        ("\udc80", "\udc81"),
    ],
)
def test_no_two_names_share_a_place(first: str, second: str) -> None:
    assert key(JOB, first) != key(JOB, second)
    assert key(JOB, first) == key(JOB, first)
    assert len(key(JOB, first)) < 255
    assert key({**JOB, "SLURM_CLUSTER_NAME": first}, "train") != key({**JOB, "SLURM_CLUSTER_NAME": second}, "train")


@pytest.mark.parametrize(
    "job", [JOB, {**JOB, "SLURM_CLUSTER_NAME": "blue-green"}, {}], ids=["job", "cluster", "no job"]
)
@pytest.mark.parametrize("store", ["{}", "file://{}", "memory://{}"])
def test_a_folder_that_an_earlier_version_named_without_a_digest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, job: dict[str, str], store: str
) -> None:
    if store.startswith("memory"):
        pytest.importorskip("fsspec")
    base = store.format(tmp_path)
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", base)
    for variable, value in job.items():
        monkeypatch.setenv(variable, value)
    cluster = job.get("SLURM_CLUSTER_NAME", "").replace("-", "_")
    older = f"{cluster}-17-train_gpt" if job else "train_gpt"

    def make(folder: str) -> None:
        within = RemoteStore(f"{base}/{folder}") if store.startswith("memory") else LocalStore(f"{tmp_path}/{folder}")
        within.make(folder_name(1, 1))
        within.write(folder_name(1, 1), rank_file(0), lambda file: file.write(b"state") and None)

    def found() -> str:
        place = Path(open_store(None, "train-gpt", single_rank=True).where)
        if place.exists() and not list(place.iterdir()):
            place.rmdir()  # it was created just now
        return place.name

    assert found() == key(job, "train-gpt") != older
    if job:
        make(f"{cluster}-my_net-17-train_gpt")
        assert found() == f"{cluster}-my_net-17-train_gpt"
    assert caplog.records == []
    make(older)
    assert found() == older
    assert [f"rename the folder to {key(job, 'train-gpt')}" in row.getMessage() for row in caplog.records] == [True]
    make(key(job, "train-gpt"))
    assert found() == key(job, "train-gpt")


def test_the_default_place_is_below_the_variables_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", str(tmp_path / "base"))
    for name, of in JOB.items():
        monkeypatch.setenv(name, of)

    assert open_store(None, "train", single_rank=True).where == str(tmp_path / "base" / "blue-17-train")


@pytest.mark.parametrize("base", ["{}/base", "file://{}/base", "{}/base/"])
@pytest.mark.parametrize("name", ["my net", "renamed"])
def test_a_folder_of_an_earlier_version_is_found_by_a_job_that_was_renamed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, name: str
) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", base.format(tmp_path))
    for variable, value in {**JOB, "SLURM_JOB_NAME": name}.items():
        monkeypatch.setenv(variable, value)
    for other in ("blue-my_net-18-train", "blue-my_net-17-evaluate", "red-my_net-17-train", "blue-my_net-117-train"):
        (tmp_path / "base" / other).mkdir(parents=True)
    assert open_store(None, "train", single_rank=True).where == str(tmp_path / "base" / "blue-17-train")
    (tmp_path / "base" / "blue-17-train").rmdir()

    (tmp_path / "base" / "blue-my_net-17-train").mkdir()
    assert open_store(None, "train", single_rank=True).where == str(tmp_path / "base" / "blue-my_net-17-train")

    (tmp_path / "base" / "blue-17-train").mkdir()
    assert open_store(None, "train", single_rank=True).where == str(tmp_path / "base" / "blue-17-train")


def test_the_older_folder_with_the_jobs_name_is_preferred() -> None:
    older = ["blue-my_net-17-train", "blue-your_net-17-train"]

    assert older_key(JOB, "train", older) == older[0]
    assert older_key({**JOB, "SLURM_JOB_NAME": "third"}, "train", older) == older[1]
    assert older_key({**JOB, "SLURM_JOB_ID": "1"}, "train", older) is None
    assert older_key({"SLURM_CLUSTER_NAME": "blue"}, "train", ["blue-x-train"]) is None


def test_without_a_clusters_name_another_clusters_folder_is_not_taken() -> None:
    assert older_key({**JOB, "SLURM_CLUSTER_NAME": ""}, "train", ["east-17-train", "my_net-17-train"]) is None
    assert older_key({"SLURM_JOB_ID": "17"}, "train", ["east-17-train"]) is None


def test_older_folders_are_found_in_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", "memory://older/base")
    for variable, value in JOB.items():
        monkeypatch.setenv(variable, value)
    assert open_store(None, "train", single_rank=True).where == "memory://older/base/blue-17-train"

    older = RemoteStore("memory://older/base/blue-my_net-17-train")
    older.write(folder_name(1, 1), rank_file(0), lambda file: file.write(b"state") and None)

    assert open_store(None, "train", single_rank=True).where == "memory://older/base/blue-my_net-17-train"


def test_a_base_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base").write_text("no folder")
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", str(tmp_path / "base"))
    for variable, value in JOB.items():
        monkeypatch.setenv(variable, value)

    with pytest.raises(Refused, match="does not begin at step 0"):
        open_store(None, "train", single_rank=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="works as another user, which only root can")
@pytest.mark.parametrize("mode", [0o1733, 0o711])
@pytest.mark.parametrize("there", ["wanted", "plain", "none"])
def test_a_base_that_may_be_entered_and_not_listed_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int, there: str
) -> None:
    folders = {"wanted": key(JOB, "train-gpt"), "plain": "blue-17-train_gpt", "none": key(JOB, "train-gpt")}
    with tempfile.TemporaryDirectory() as base:  # another user can enter it, unlike the test's own folder
        monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", base)
        for variable, value in JOB.items():
            monkeypatch.setenv(variable, value)
        if there != "none":
            made = Path(base, folders[there])
            made.mkdir(mode=0o700)
            os.chown(made, 65534, 65534)
        Path(base).chmod(mode)
        os.seteuid(65534)
        try:
            if there == "none" and mode == 0o711:
                with pytest.raises(Refused, match="Permission denied"):
                    open_store(None, "train-gpt", single_rank=True)
            else:
                assert open_store(None, "train-gpt", single_rank=True).where == f"{base}/{folders[there]}"
        finally:
            os.seteuid(0)

    expected = {"wanted": [], "plain": ["rename the folder to"], "none": ["may not list the folder"]}[there]
    assert [each in row.getMessage() for each, row in zip(expected, caplog.records, strict=True)] == [True] * len(
        expected
    )


def test_ranks_without_init_process_group_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(Refused, match="init_process_group"):
        open_store(None, "train", single_rank=True)
    assert open_store(str(tmp_path / "mine"), None, single_rank=True).where == str(tmp_path / "mine")

    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(Refused, match="init_process_group"):
        open_store(str(tmp_path / "mine"), None, single_rank=True)


@pytest.mark.parametrize("version", ["2.0.1", "2.5.1+cu121", "2.9.1", "2.10.0", "odd"])
def test_every_torch_loads_from_stores_without_owners_of_files(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setattr(torch, "__version__", version)
    assert open_store("memory://bucket/run", None, single_rank=True).folders() == []


def manifest(step: int, receipt: Receipt) -> Manifest:
    return Manifest(step, 1, 7, "2.13", 0.0, 0.1, 0.2, {rank_file(0): receipt})


def test_other_urls_go_through_fsspec() -> None:
    pytest.importorskip("fsspec")
    shelf = Catalog(RemoteStore("memory://bucket/run"), keep=2)
    assert shelf.newest_first() == []
    for number in range(1, 5):
        folder = folder_name(number * 10, number)
        shelf.store.make(folder)
        receipt = shelf.store.write(folder, rank_file(0), lambda file: file.write(b"state") and None)
        if number != 2:
            shelf.write_manifest(folder, manifest(number * 10, receipt))
        shelf.tidy(before=number)

    newest = shelf.newest_first()
    shelf.set_aside(newest[0])

    assert newest == [folder_name(40, 4), folder_name(30, 3)]
    assert shelf.newest_first() == [folder_name(30, 3)]
    assert shelf.next_number() == 5
    assert shelf.manifest(newest[1]).files[rank_file(0)] == Receipt(5, receipt.digest)
    with shelf.store.read(newest[1], rank_file(0)) as file:
        assert file.read() == b"state"
    with pytest.raises(Damaged):
        shelf.store.read(newest[1], rank_file(1))
