"""Ranks that do not all call `headway_job.checkpoint`: those that wait say so, and end with an error that names the others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from headway_job.checkpoints.errors import Refused
from headway_job.checkpoints.ranks.meeting import Meeting, _names
from torch._C._distributed_c10d import HashStore

from tests.unit.headway_job.agent import JOBSIDE

_PROGRAM = """
import sys, time
from pathlib import Path
import torch, torch.distributed as dist, headway_job
from headway_job.checkpoints.ranks import meeting
rank, folder, how = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
meeting.training_timeout_s = lambda dist: 0.0
meeting._SAY_AFTER_S = 0.1
meeting._MOST_S = 1.0 if how == "absent" else 1000.0
def wait_for(name):
    until = time.monotonic() + 60
    while not (folder / name).exists() and time.monotonic() < until: time.sleep(0.01)
write_line = meeting.job_log.write_line
def written(text):
    write_line(text)
    (folder / "said").touch()
meeting.job_log.write_line = written
model = torch.nn.Linear(2, 2)
others = {"tracker": object()} if how == "refused" and rank == 1 else {}
if rank == 1: wait_for("ended" if how == "absent" else "said")
try:
    if how != "absent" or rank == 0:
        headway_job.checkpoint(str(folder / "run"), model=model, **others).close()
    print("trained")
except headway_job.Refused as error:
    print("refused", error)
(folder / "ended").touch()
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Return a list for the processes that the test starts, and kill them in the end."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _run(ranks: list[subprocess.Popen[str]], folder: Path, how: str) -> list[tuple[str, str]]:
    env = {**os.environ, "PYTHONPATH": str(JOBSIDE), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    for rank in (0, 1):
        argv = [sys.executable, "-c", _PROGRAM, str(rank), str(folder), how]
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True))
    return [process.communicate(timeout=240) for process in ranks]


def test_a_rank_that_never_calls_is_named_and_not_waited_for_much_longer(
    ranks: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    (out, log), (other, _) = _run(ranks, tmp_path, "absent")

    assert out.startswith(
        "refused headway_job.checkpoint was not called on all ranks within 0.0167 minutes: rank 1 of 2 ranks"
    )
    assert other == "trained\n"
    assert log.count("headway: rank 0 waits in headway_job.checkpoint since ") == 1
    assert "for rank 1 of 2 ranks" in log


@pytest.mark.slow
def test_a_rank_that_is_late_is_waited_for(ranks: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    (out, log), (other, _) = _run(ranks, tmp_path, "late")

    assert (out, other) == ("trained\n", "trained\n")
    assert log.count("waits in headway_job.checkpoint") == 1


def test_what_one_rank_cannot_save_is_refused_on_all(ranks: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    (out, _), (other, _) = _run(ranks, tmp_path, "refused")

    assert other.startswith("refused tracker has no state_dict")
    assert out.startswith("refused A rank cannot take part: rank 1: tracker has no state_dict")


def _meet(meetings: list[Meeting], most_s: float) -> list[str]:
    """Let each of the meetings wait in its own thread; return what each has raised, or nothing."""
    raised = [""] * len(meetings)

    def wait(place: int) -> None:
        try:
            meetings[place].wait(1000.0, most_s)
        except Refused as error:
            raised[place] = str(error)

    threads = [threading.Thread(target=wait, args=(place,)) for place in range(len(meetings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_all_of_many_ranks_meet_again_and_again() -> None:
    store = HashStore()
    for number in (1, 2):
        assert _meet([Meeting(store, number, rank, 70) for rank in range(70)], 100.0) == [""] * 70


def test_many_missing_ranks_are_named_on_all_that_wait() -> None:
    store = HashStore()
    here = [Meeting(store, 1, rank, 70) for rank in range(70) if rank not in (3, 31, 32, 33, 69)]
    for each in here:
        each._arrive()
    here[0]._give_up(60.0)
    late = Meeting(store, 1, 3, 70)  # it does not wait for the others, which have left
    late._arrive()
    for each in (*here, late):
        with pytest.raises(Refused, match="within 1 minutes: ranks 3, 31-33, 69 of 70 ranks did not call it"):
            each._over()


def test_a_reason_with_a_path_that_is_no_utf_8_reaches_the_others() -> None:
    store = HashStore()
    Meeting(store, 1, 1, 2).refuse("/scratch/caf\udce9 cannot be written")
    with pytest.raises(Refused, match=r"rank 1: /scratch/caf\\udce9 cannot be written"):
        Meeting(store, 1, 0, 2)._over()


def test_a_store_that_is_gone_is_no_endless_wait() -> None:
    class Gone:
        def add(self, _key: str, _number: int) -> int:
            return 1

        def check(self, _keys: list[str]) -> bool:
            raise RuntimeError("Connection reset by peer")

    with pytest.raises(Refused, match=r"does not answer \(Connection reset by peer\)"):
        Meeting(Gone(), 1, 1, 2).wait(1000.0, 1000.0)


def test_names_of_ranks() -> None:
    assert _names([4]) == "rank 4"
    assert _names([0, 1, 2, 7]) == "ranks 0-2, 7"
    assert _names(list(range(0, 60, 2))) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and more, 30 in all"
