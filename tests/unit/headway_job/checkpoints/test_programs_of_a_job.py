"""Several programs of one script in a job: each has its own checkpoints; and a run says what it has restored, and from where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from headway_job import checkpoint, started
from headway_job.checkpoints.program import Program, number_of_this
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.run_folder import is_apart

A, B, C = "aaaaaaaa", "bbbbbbbb", "cccccccc"


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "WORLD_SIZE",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_ARRAY_JOB_ID",
        "HEADWAY_CONTINUE_FROM",
        "SLURM_CLUSTER_NAME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)
    return tmp_path


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(monkeypatch)


class Programs:
    """Programs of one script, in the starts of one job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(
        self,
        arguments: str,
        job: str = "7",
        start: int = 0,
        *,
        steps: int = 2,
        url: str | None = None,
        name: str | None = None,
    ) -> tuple[int, float]:
        """Train so many steps, save at the last one, and return the first step and the weight with which it began."""
        self._monkeypatch.setenv("SLURM_JOB_ID", job)
        self._monkeypatch.setenv("SLURM_RESTART_COUNT", str(start))
        self._monkeypatch.setattr(sys, "argv", ["train.py", *arguments.split()])
        model = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(model.weight, float(arguments[-1]))
        run: Run = checkpoint(url, model=model, name=name)
        weight = model.weight.item()
        for number in range(run.start, run.start + steps):
            if number == run.start + steps - 1:
                run.save()
            run.step(number)
        run.close()
        return run.start, weight


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [
        line.removeprefix("headway: ") for line in capsys.readouterr().err.splitlines() if line.startswith("headway: ")
    ]


def test_the_programs_of_a_sweep_do_not_continue_each_other(
    program: Programs, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a batch script with three trainings, one after the other
    assert [program(f"--lr {lr}") for lr in (1, 2, 3)] == [(0, 1.0), (0, 2.0), (0, 3.0)]
    assert sum("so this one has its own" in line for line in lines(capsys)) == 2
    # when Slurm starts the job again, each continues its own
    assert [program(f"--lr {lr}", start=1) for lr in (1, 2, 3)] == [(2, 1.0), (2, 2.0), (2, 3.0)]
    # and also if those that have ended are left out, where a new one begins anew
    assert program("--lr 2", start=2) == (4, 2.0)
    assert program("--lr 4", start=2) == (0, 4.0)
    assert program("--lr 3", start=3) == (4, 3.0)
    assert program("--lr 1", start=3) == (4, 1.0)
    assert [path.name for path in base.iterdir()] == ["7-train"]


def test_a_sweep_that_was_stopped_during_its_first_training_does_not_mix_them_up(program: Programs) -> None:
    assert program("--lr 1") == (0, 1.0)
    assert program("--lr 1", start=1, steps=0) == (2, 1.0)
    assert program("--lr 2", start=1) == (0, 2.0)


def test_a_first_training_that_has_saved_nothing_keeps_its_folder(program: Programs) -> None:
    assert program("--lr 1", steps=0) == (0, 1.0)
    assert program("--lr 2") == (0, 2.0)
    assert program("--lr 1", start=1) == (0, 1.0)
    assert program("--lr 2", start=1) == (2, 2.0)


def test_the_same_program_again_continues(program: Programs) -> None:
    """As in a loop of the batch script, until the program succeeds."""
    assert [program("--lr 1") for _ in range(3)] == [(0, 1.0), (2, 1.0), (4, 1.0)]


def test_arguments_that_each_start_has_anew_lose_nothing_and_a_line_says_so(
    program: Programs, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("--dist-url tcp://n1:29501") == (0, 1.0)
    lines(capsys)
    assert program("--dist-url tcp://n2:29502", start=1) == (2, 1.0)
    restored, other, start = lines(capsys)
    assert restored == f"restored {base}/7-train/step-000000002-0001: 2 steps are done"
    assert other.startswith("that checkpoint was saved by a program with other arguments")
    assert start.startswith("this is start 2 of the job")
    assert program("--dist-url tcp://n3:29503", start=2) == (4, 1.0)


@pytest.mark.parametrize("host", ["/env/ipykernel_launcher.py", "/env/ray/workers/default_worker.py"])
def test_the_arguments_of_jupyter_and_ray_do_not_count(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name ports and files, which each process has anew, also within one start of the job."""
    found = set()
    for each in ("kernel-1.json", "kernel-2.json"):
        monkeypatch.setattr(started, "ARGUMENTS", [host, "-f", each])
        monkeypatch.setattr(sys, "argv", [host, "-f", each])
        found.add(number_of_this())
    monkeypatch.setattr(sys, "argv", ["train.py", "-f", "1"])
    assert len(found) == 1
    assert number_of_this() not in found


@pytest.mark.parametrize("given", ["name", "url"])
def test_a_name_or_a_folder_does_not_depend_on_the_arguments(
    program: Programs, base: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {given: "net" if given == "name" else str(base / "net")}
    assert program("--lr 1", **options) == (0, 1.0)  # type: ignore[arg-type]
    assert lines(capsys) == []
    assert program("--lr 2", **options) == (2, 1.0)  # type: ignore[arg-type]
    assert [line.split()[0] for line in lines(capsys)] == ["restored", "that"]


def test_a_job_continues_the_program_with_the_same_arguments_of_another_job(
    program: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lr in (1, 2):
        program(f"--lr {lr}")
    monkeypatch.setenv("HEADWAY_CONTINUE_FROM", "7")
    assert [program(f"--lr {lr}", job="8") for lr in (1, 2)] == [(2, 1.0), (2, 2.0)]
    assert program("--lr 5", job="9") == (2, 1.0)


def test_a_checkpoint_of_an_earlier_version_is_continued_without_a_word_about_arguments(
    program: Programs, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("headway_job.checkpoints.run_folder._leave", lambda *_args: None)
        earlier.setattr("headway_job.checkpoints.run.PROGRAM", "unknown")
        program("--lr 1")
    lines(capsys)
    assert program("--lr 1", start=1) == (2, 1.0)
    assert [line.split()[0] for line in lines(capsys)] == ["restored", "this"]


@pytest.mark.parametrize(
    ("names", "apart"),
    [
        ([], False),
        (["step-000000002-0001"], False),
        ([f"program-{A}-7.1"], False),
        ([f"program-{A}-7.0"], False),
        ([f"program-{B}-7.0"], False),
        ([f"program-{B}-7.1"], True),
        ([f"program-{B}-6.1"], False),
        ([f"program-{A}-7.1", f"program-{B}-7.1"], True),
        ([f"program-{A}-7.1", f"arguments-{A}"], True),
        ([f"program-{A}-7.0", f"arguments-{B}"], False),
        ([f"program-{C}-7.0", f"arguments-{B}"], True),
    ],
)
def test_the_folder_follows_from_the_marks(names: list[str], apart: bool) -> None:
    assert is_apart(names, Program(A, "7.1")) is apart


def test_programs_that_begin_at_the_same_moment_do_not_share_a_folder(
    program: Programs, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaves its mark before it looks for those of others; so at least one of them sees the other's."""
    from headway_job.checkpoints import run_folder

    leave = run_folder._leave

    def leave_beside_another(store: object, folder: str, names: list[str]) -> None:
        leave(store, folder, names)  # type: ignore[arg-type]
        if folder.startswith("program-"):
            leave(store, f"program-{B}-7.0", names)  # type: ignore[arg-type]

    monkeypatch.setattr(run_folder, "_leave", leave_beside_another)
    assert program("--lr 1") == (0, 1.0)
    assert list((base / "7-train").glob("step-*")) == []
    assert len(list((base / "7-train").glob("arguments-*/step-*"))) == 1


def test_in_an_object_store_programs_are_kept_apart_as_well(program: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", "memory://programs")
    assert [program(f"--lr {lr}") for lr in (1, 2)] == [(0, 1.0), (0, 2.0)]
    assert [program(f"--lr {lr}", start=1) for lr in (2, 1)] == [(2, 2.0), (2, 1.0)]
