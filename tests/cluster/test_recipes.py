"""The recipes of docs/recipes.md on a real Slurm: Headway moves their jobs, and they go on elsewhere at the step that they left."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.live import USER
from tests.cluster.returning import STARTS_S, Returning, returning

pytestmark = pytest.mark.timeout(600)
with_frameworks = (pytest.mark.slow, pytest.mark.timeout(1800))

RECIPES = Path(__file__).resolve().parents[2] / "examples/recipes"
STEPS = 120
ASKED_AFTER = 25
INSTALL_S = 900
FRAMEWORK_STARTS_S = 180.0
_TOLD = re.compile(r"^step (\d+) loss ([\d.]+)$", re.MULTILINE)

IGNORES = """#!/bin/sh
#SBATCH --gpus=1 --requeue --comment=headway=preemptible
trap : USR1
srun env --ignore-signal=USR1 python every_ten_train.py
"""
ENDLESS = IGNORES.replace(
    "srun env --ignore-signal=USR1 python every_ten_train.py",
    "sed 's/, 120)/, 100000)/' every_ten_train.py >endless_train.py\n"
    "srun env --ignore-signal=USR1 python endless_train.py",
)
LOSS_OF_SAVED = """
import sys, lightning_train as script, torch
saved = torch.load(sys.argv[1], weights_only=False)
model = script.Regression()
model.load_state_dict(saved["state_dict"])
x, y = next(iter(torch.utils.data.DataLoader(script.Numbers(), batch_size=8)))  # its data begin anew
print(saved["global_step"], torch.nn.functional.mse_loss(model.layers(x), y).item())
"""


@dataclass(frozen=True)
class Recipe:
    """The recipes' files in a folder of a test's own, where an ordinary user's jobs run them with that Python."""

    cluster: Returning
    folder: Path
    python: Path
    starts_s: float

    @property
    def environment(self) -> dict[str, str]:
        """What the user has: an activated virtual environment, and one core."""
        path = f"{self.python}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "OMP_NUM_THREADS": "1", "HOME": str(self.folder)}

    def submit(self, script: str, *options: str) -> str:
        """A batch script by name, or as a text; the job's id."""
        text = (self.folder / script).read_text() if script.endswith(".sh") else script
        where = (f"--chdir={self.folder}", f"--output={self.folder}/%j.log")
        return self.cluster.submit(text, *where, *options, **self.environment)

    def submit_itself(self, program: str) -> str:
        """A program that submits its job, on a login on n1; the job's id."""
        values = {**self.cluster.cluster.env, **self.environment, "SUBMITIT_PREEMPT_SIGNAL": "USR1"}
        argv = ("env", "-i", f"--chdir={self.folder}", *(f"{key}={value}" for key, value in values.items()))
        done = self.cluster.cluster.run_on("n1", *argv, "python", program, user=USER, timeout=120)
        return done.stdout.split()[-1]

    def run(self, *argv: str) -> str:
        """The recipe's Python, in its folder, outside of Slurm."""
        command = (f"{self.python}/bin/python", "-c", *argv)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout

    def output(self, job: str) -> str:
        """What all runs of a job have said; submitit's tasks have files of their own."""
        found = [self.folder / f"{job}.log", *self.folder.glob(f"runs/{job}_*_log.out")]
        return "".join(path.read_text(errors="replace") for path in found if path.exists())

    def steps(self, job: str) -> list[tuple[int, float]]:
        """Step and loss, in the order in which they were told."""
        return [(int(step), float(loss)) for step, loss in _TOLD.findall(self.output(job))]

    def until_trains(self, job: str) -> None:
        """Until it is in the middle of its training."""

        def trains() -> bool:
            assert self.cluster.state(job) not in {"COMPLETED", "FAILED"}, self.output(job)[-3000:]
            return ASKED_AFTER in dict(self.steps(job))

        self.cluster.until(trains, f"step {ASKED_AFTER} of {job}", self.starts_s)

    def move(self, job: str) -> dict[str, Any]:
        """In the middle of its training, to other nodes, where it trains to its end; what Headway says of it."""
        self.until_trains(job)
        before = self.cluster.nodes(job)
        self.cluster.headway.headway("move", job)
        row = self.cluster.until_stage(job, "started", "resumed", "called off", "over", timeout_s=self.starts_s)
        assert row["stage"] in {"started", "resumed"}, (row, self.output(job)[-3000:])
        assert not set(self.cluster.nodes(job)) & set(before), "it runs elsewhere"
        self.cluster.until_state(job, "COMPLETED", timeout_s=self.starts_s)
        assert self.cluster.show(job)["Restarts"] == "1"
        return row

    def until_refused(self, job: str, why: str) -> None:
        """Headway does not preempt it, for that reason, once its agent has told."""

        def refused() -> bool:
            done = self.cluster.headway.headway("preempt", job, check=False)
            assert done.returncode != 0, self.cluster.preemptions(job)
            return why in done.stderr

        self.cluster.until(refused, f"{job} {why}")

    def check_steps(self, job: str, *, lost: int = 0) -> None:
        """It began where it had left off, or at most so many steps before that.

        What a program that is killed said last may die with its `srun`: up to `lost` steps after the last one told may
        have been made and saved all the same. That they were, the losses of the steps after them show.
        """
        steps = [step for step, _ in self.steps(job)]
        assert (steps[0], steps[-1]) == (0, STEPS - 1)
        jumps = [(before, step) for before, step in pairwise(steps) if step != before + 1]
        assert len(jumps) <= 1
        assert all(ASKED_AFTER - lost < step <= before + 1 + lost for before, step in jumps)

    def check_losses(self, job: str, whole: str) -> None:
        """Every step, also where it was made again, has the loss of the job that was left alone."""
        self.cluster.until_state(whole, "COMPLETED", timeout_s=self.starts_s)
        expected = dict(self.steps(whole))
        for step, loss in self.steps(job):
            assert loss == pytest.approx(expected[step], abs=2e-6), step


@pytest.fixture(scope="module")
def cluster() -> Iterator[Returning]:
    with returning() as found:
        yield found


@pytest.fixture(scope="module")
def frameworks() -> Path:
    """A Python with the frameworks, made once and kept: below ours, which is where users of the nodes can see it."""
    folder, wanted = Path(sys.prefix) / "recipes", RECIPES / "requirements.txt"
    stamp = folder / wanted.name
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=120)
        pip = (folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted)
        subprocess.run(pip, check=True, timeout=INSTALL_S)
        shutil.copy(wanted, stamp)
    return folder


@pytest.fixture
def recipe(cluster: Returning, request: pytest.FixtureRequest) -> Iterator[Recipe]:
    """With this Python; with that of the frameworks where a test is slow."""
    slow = request.node.get_closest_marker("slow") is not None
    python = request.getfixturevalue("frameworks") if slow else Path(sys.prefix)
    folder = cluster.cluster.layout.work / re.sub(r"\W+", "-", request.node.name)
    shutil.copytree(RECIPES, folder)
    # Longer steps: the commands that ask Headway take seconds on a busy machine, and are to come before the last step
    for program in folder.glob("*_train.py"):
        program.write_text(program.read_text().replace("time.sleep(0.05)", "time.sleep(0.15)"))
    shutil.chown(folder, USER)
    yield Recipe(cluster, folder, python, FRAMEWORK_STARTS_S if slow else STARTS_S)
    cluster.cancel_all()


# --- jobs that come back


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        ("signal.sh", 0),
        ("trap.sh", 10),
        pytest.param("checkpoint.sh", 0, marks=pytest.mark.slow),
        pytest.param("lightning_ranks.sh", 0, marks=with_frameworks),
        pytest.param("trainer.sh", 0, marks=with_frameworks),
        pytest.param("torchrun.sh", 0, marks=with_frameworks),
    ],
)
def test_a_moved_job_goes_on_as_if_nothing_had_been(recipe: Recipe, script: str, lost: int) -> None:
    """`lost`: the steps between two checkpoints, where the program saves at times of its own."""
    whole, moved = recipe.submit(script), recipe.submit(script)

    recipe.move(moved)

    recipe.check_steps(moved, lost=lost)
    recipe.check_losses(moved, whole)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_lightning_unchanged_goes_on_with_the_weights_it_had(recipe: Recipe) -> None:
    job = recipe.submit("lightning.sh")

    recipe.move(job)

    # Then its first new step has the loss of the weights that were saved
    recipe.check_steps(job)
    step, loss = recipe.run(LOSS_OF_SAVED, f"runs/{job}/hpc_ckpt_1.ckpt").split()
    assert int(step) > ASKED_AFTER
    assert dict(recipe.steps(job))[int(step)] == pytest.approx(float(loss), abs=2e-6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_submitit_goes_on_after_its_last_save(recipe: Recipe) -> None:
    whole, moved = recipe.submit_itself("submitit_train.py"), recipe.submit_itself("submitit_train.py")

    recipe.move(moved)

    recipe.check_steps(moved, lost=10)
    recipe.check_losses(moved, whole)


# --- jobs that do not come back


def test_a_job_that_would_not_heed_the_signal_is_not_asked(recipe: Recipe) -> None:
    job = recipe.submit(ENDLESS.replace("trap :", "trap ''"))
    recipe.until_trains(job)

    recipe.until_refused(job, "would not react to USR1")
    assert recipe.cluster.state(job) == "RUNNING"
    recipe.cluster.cluster.run("scancel", job)


def test_a_job_that_ignores_the_signal_is_left_where_it_is(recipe: Recipe) -> None:
    job = recipe.submit(IGNORES)
    recipe.until_trains(job)

    recipe.cluster.headway.headway("preempt", job, "--within", "2")

    assert "did not requeue itself" in recipe.cluster.until_stage(job, "called off")["problem"]
    recipe.cluster.until_state(job, "COMPLETED", timeout_s=recipe.starts_s)
    assert recipe.cluster.show(job)["Restarts"] == "0"
    assert [step for step, _ in recipe.steps(job)] == list(range(STEPS))


def test_a_job_that_slurm_would_not_start_again_is_not_asked(recipe: Recipe) -> None:
    job = recipe.submit("trap.sh", "--no-requeue")
    recipe.until_trains(job)

    done = recipe.cluster.headway.headway("preempt", job, check=False)

    assert done.returncode != 0
    assert "--no-requeue" in done.stderr
    # And had it been asked by somebody else, it would have gone on
    recipe.cluster.cluster.run("scancel", "--signal=USR1", "--full", job)
    recipe.cluster.until_state(job, "COMPLETED", timeout_s=recipe.starts_s)
    assert "Requested operation is presently disabled" in recipe.output(job)
    assert [step for step, _ in recipe.steps(job)] == list(range(STEPS))


def test_a_batch_script_without_a_trap_is_not_asked(recipe: Recipe) -> None:
    """It would end of the signal, which is why every recipe has one."""
    job = recipe.submit(ENDLESS.replace("trap : USR1\n", ""))
    recipe.until_trains(job)

    recipe.until_refused(job, "would be ended by USR1")
    assert recipe.cluster.state(job) == "RUNNING"

    # And had it been asked by somebody else

    recipe.cluster.cluster.run("scancel", "--signal=USR1", "--full", job)

    recipe.cluster.until_state(job, "FAILED")
