"""A copy of the state is not made if it would exceed the job's memory: the training goes on, and the log says why."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from headway_job.checkpoints.state import dtensor, memory, state_dict
from headway_job.checkpoints.state.memory import MemoryBudget, left_bytes, most_bytes, ranks_here

from tests.unit.headway_job.checkpoints.conftest import ForkServer

MIB = 1 << 20


def cgroup(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("row", "where", "limit", "used", "prefix"),
    [
        ("0::/slurm/job_1/step_0", "", "memory__max", "memory__current", ""),
        ("9:cpu,memory:/slurm/job_1/step_0", "memory", "memory__limit_in_bytes", "memory__usage_in_bytes", "total_"),
    ],
    ids=["v2", "v1"],
)
def test_the_narrowest_cgroup_above_the_process_counts(
    tmp_path: Path, row: str, where: str, limit: str, used: str, prefix: str
) -> None:
    proc = tmp_path / "cgroup"
    proc.write_text(f"3:pids:/other\n{row}\n")
    top = tmp_path / "fs" / where
    cgroup(top / "slurm" / "job_1" / "step_0", **{limit: "max\n", used: "5\n"})
    cgroup(
        top / "slurm" / "job_1",
        **{
            limit: f"{1000 * MIB}\n",
            used: f"{700 * MIB}\n",
            "memory__stat": f"anon 5\n{prefix}inactive_file {60 * MIB}\n{prefix}active_file {40 * MIB}\n",
        },
    )
    cgroup(top / "slurm", **{limit: f"{9000 * MIB}\n", used: f"{800 * MIB}\n"})

    assert left_bytes(str(proc), str(tmp_path / "fs")) == (1000 - 700 + 100 - 64) * MIB


def test_cached_files_do_not_count_as_used_memory(tmp_path: Path) -> None:
    proc = tmp_path / "cgroup"
    proc.write_text("0::/job\n")
    stat = f"anon 5\nslab_reclaimable {600 * MIB}\nslab_unreclaimable {50 * MIB}\nslab {650 * MIB}\n"
    cgroup(tmp_path / "job", memory__max=f"{1000 * MIB}", memory__current=f"{700 * MIB}", memory__stat=stat)

    assert left_bytes(str(proc), str(tmp_path)) == (1000 - 700 + 600 - 64) * MIB


@pytest.mark.parametrize(
    ("limit", "swapped", "free", "most"),
    [
        ("0", "0", 500, 300), ("200", "50", 500, 450), ("max", "50", 500, 800), ("max", "50", 0, 300), (None, None, 500, 800),
        ("50", "60", 500, 300),
    ],
)  # fmt: skip
def test_a_resume_may_use_the_swap_that_the_cgroup_allows_and_no_memory_is_reserved(
    tmp_path: Path, limit: str | None, swapped: str | None, free: int, most: int
) -> None:
    proc, meminfo = tmp_path / "cgroup", tmp_path / "meminfo"
    proc.write_text("0::/job\n")
    meminfo.write_text(f"MemTotal:       9999 kB\nSwapFree:   {free * 1024} kB\nHugePages_Total:       0\n")

    def in_bytes(text: str) -> str:
        return text if text == "max" else str(int(text) * MIB)

    cgroup(tmp_path / "job", memory__max=f"{1000 * MIB}", memory__current=f"{700 * MIB}")
    if limit is not None and swapped is not None:
        cgroup(tmp_path / "job", memory__swap__max=in_bytes(limit), memory__swap__current=in_bytes(swapped))

    assert most_bytes(1, str(proc), str(tmp_path), str(meminfo)) == most * MIB
    assert most_bytes(3, str(proc), str(tmp_path), str(meminfo)) == most * MIB // 3
    assert left_bytes(str(proc), str(tmp_path)) == (300 - 64) * MIB


@pytest.mark.parametrize(("both", "most"), [(1000, 300), (1150, 450), (5000, 800)])
def test_in_v1_the_limit_of_memory_and_swap_together_counts(tmp_path: Path, both: int, most: int) -> None:
    proc, meminfo = tmp_path / "cgroup", tmp_path / "meminfo"
    proc.write_text("4:memory:/job\n")
    meminfo.write_text(f"SwapFree: {500 * 1024} kB\n")
    cgroup(
        tmp_path / "memory" / "job",
        memory__limit_in_bytes=f"{1000 * MIB}",
        memory__usage_in_bytes=f"{700 * MIB}",
        memory__memsw__limit_in_bytes=f"{both * MIB}",
        memory__memsw__usage_in_bytes=f"{700 * MIB}",
    )

    assert most_bytes(1, str(proc), str(tmp_path), str(meminfo)) == most * MIB


def test_without_limits_there_is_no_bound(tmp_path: Path) -> None:
    proc = tmp_path / "cgroup"
    assert left_bytes(str(proc), str(tmp_path)) is None
    proc.write_text("0::/\nrubbish\n1:memory:/../..\n")
    assert left_bytes(str(proc), str(tmp_path)) is None
    cgroup(tmp_path / "memory", memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="1")
    assert left_bytes(str(proc), str(tmp_path)) is None
    MemoryBudget(None).take(1 << 80)
    assert most_bytes(1, str(proc), str(tmp_path)) is None
    left_bytes(), most_bytes()  # of this machine, with any limits


def test_a_budget_gets_smaller() -> None:
    room = MemoryBudget(100)
    room.take(60)
    with pytest.raises(MemoryError, match=r"request more memory \(--mem\)"):
        room.take(60)
    room.take(40)


def test_ranks_of_a_node_are_what_the_launcher_says() -> None:
    assert ranks_here({}) == ranks_here({"LOCAL_WORLD_SIZE": "many"}) == ranks_here({"SLURM_NTASKS_PER_NODE": "0"}) == 1
    assert ranks_here({"LOCAL_WORLD_SIZE": "8", "SLURM_NTASKS_PER_NODE": "1"}) == 8


class Stage:
    """An object that each rank saves by itself."""

    def __init__(self) -> None:
        self.weight = torch.zeros(100)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.weight = state["weight"]


@pytest.mark.parametrize(
    ("rank", "least", "left", "fits"),
    [
        (0, 400, 1999, False), (0, 400, 2000, True), (1, 400, 1599, False), (1, 400, 1600, True),
        (0, 100, 1099, False), (0, 100, 1100, True), (1, 100, 699, False), (1, 100, 700, True),
        (0, 0, 799, False), (0, 0, 800, True), (1, 0, 399, False), (1, 0, 400, True),
    ],
)  # fmt: skip
def test_of_the_memory_of_a_node_other_ranks_take_the_least_that_they_copy_of_their_own_objects(
    monkeypatch: pytest.MonkeyPatch, rank: int, least: int, left: int, fits: bool
) -> None:
    """This rank needs 400 bytes for its stage, each of three others at least `least`, and rank 0 400 for the model of all."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    monkeypatch.setattr(memory, "left_bytes", lambda: left)
    model = torch.nn.Linear(10, 10, bias=False)
    objects = state_dict.StatefulObjects({"model": model, "stage": [Stage()]})
    objects.most_ranks = 4
    objects.least_own_bytes = {"model": 0, "stage": least}
    if not fits:
        with pytest.raises(MemoryError):
            objects.copy(rank)
        return
    assert objects.copy(rank)["own"]["stage.0"]["weight"].shape == (100,)


def test_a_state_that_has_grown_since_the_ranks_were_compared_counts_for_each_rank_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least stage has half of this one's size, as it had in the beginning."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    stage = Stage()
    objects = state_dict.StatefulObjects({"stage": stage})
    objects.least_own_bytes = {"stage": 200}
    stage.weight = torch.zeros(300)
    monkeypatch.setattr(memory, "left_bytes", lambda: 2399)
    with pytest.raises(MemoryError):
        objects.copy(0)
    monkeypatch.setattr(memory, "left_bytes", lambda: 2400)
    objects.copy(0)


def test_an_object_of_one_rank_counts_once_for_its_node(fork_server: ForkServer, folder: Path) -> None:
    """Each of two ranks has a stage of 1 MiB, and rank 0 alone 2 MiB of averages: 4 MiB and a little fit, 3 do not."""
    for left, saved in ((5 * MIB, 1), (4 * MIB - 1, None)):
        ended = fork_server.run("memory.averages_on_rank_0", 2, folder=folder / str(left), left=left)

        assert ended.ends == [0, 0], ended.logs
        assert [ended.reported("saved", rank) for rank in (0, 1)] == [saved, saved], ended.logs


def test_what_rank_0_alone_copies_beside_shards_counts_once() -> None:
    model = torch.nn.Linear(10, 10, bias=False)
    each = dtensor.StatefulObject("model", model)
    copy = dtensor.split_shards(each, model.state_dict(), [], MemoryBudget(400), here=4, keep=True)
    assert copy["weight"].equal(model.weight)


def test_of_rank_0_s_file_other_ranks_read_only_what_is_shared() -> None:
    model = torch.nn.Linear(10, 10, bias=False)
    state = state_dict.StatefulObjects({"model": model, "stage": Stage()}).copy(0)
    file = io.BytesIO()
    state_dict.encode(state).write(file)

    found = state_dict.read(file, own=False)

    assert (found["own"], found["rng"]) == (None, None)
    assert found["shared"]["model"]["weight"].equal(model.weight)
    assert state_dict.shared_bytes(file) == 400
    assert state_dict.read(file)["own"]["stage"]["weight"].shape == (100,)


def test_a_state_that_does_not_fit_into_memory_fails_only_that_checkpoint(
    fork_server: ForkServer, folder: Path
) -> None:
    ended = fork_server.run("cramped", 2, folder=folder)

    assert ended.ends == [0, 0], ended.logs
    assert [ended.reported(when, 1) for when in ("before", "cramped", "after")] == [2, 2, 6]
    assert (
        "There is no checkpoint of step 4, as the state could not be copied: a copy of the state does not fit into the memory"
        in ended.logs[0]
    )
    assert "the state could not be copied" not in ended.logs[1]


def test_ranks_that_cannot_connect_over_gloo_are_refused_with_advice(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("no_interface", 2, folder=folder)

    assert ended.ends == [1, 1]
    for log in ended.logs:
        assert "headway_job.checkpoints.errors.Refused: The ranks cannot connect to each other over gloo" in log
        assert "Set GLOO_SOCKET_IFNAME, on all ranks" in log
