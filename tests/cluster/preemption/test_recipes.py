"""The recipes of docs/recipes.md on a real Slurm: Headway moves their jobs, which continue on other nodes where they stopped."""

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
from tests.cluster.preemption.returning import STARTS_S, Returning, returning

pytestmark = pytest.mark.timeout(600)
with_frameworks = (pytest.mark.slow, pytest.mark.timeout(1800))

RECIPES = Path(__file__).resolve().parents[3] / "examples/recipes"
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
SLEEP = "exists = __import__('os').path.exists; time.sleep(0 if exists('hurry') else 0.5 if exists('asked') else 0.15)"
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
    """The files of the recipes in a folder of one test, where the jobs of an ordinary user run them with that Python."""

    cluster: Returning
    folder: Path
    python: Path
    starts_s: float

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the user: an activated virtual environment, and one core."""
        path = f"{self.python}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "OMP_NUM_THREADS": "1", "HOME": str(self.folder)}

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script, given by name or as a text. Return the id of the job."""
        text = (self.folder / script).read_text() if script.endswith(".sh") else script
        where = (f"--chdir={self.folder}", f"--output={self.folder}/%j.log")
        return self.cluster.submit(text, *where, *options, **self.environment)

    def submit_itself(self, program: str) -> str:
        """Run a program on n1 that submits its job. Return the id of the job."""
        values = {**self.cluster.cluster.env, **self.environment, "SUBMITIT_PREEMPT_SIGNAL": "USR1"}
        argv = ("env", "-i", f"--chdir={self.folder}", *(f"{key}={value}" for key, value in values.items()))
        done = self.cluster.cluster.run_on("n1", *argv, "python", program, user=USER, timeout=120)
        return done.stdout.split()[-1]

    def run(self, *argv: str) -> str:
        """Run the recipe's Python in its folder, outside of Slurm. Return its output."""
        command = (f"{self.python}/bin/python", "-c", *argv)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout

    def output(self, job: str) -> str:
        """Return the output of all runs of a job; the tasks of submitit have files of their own."""
        found = [self.folder / f"{job}.log", *self.folder.glob(f"runs/{job}_*_log.out")]
        return "".join(path.read_text(errors="replace") for path in found if path.exists())

    def steps(self, job: str) -> list[tuple[int, float]]:
        """Return step and loss, in the order of the output."""
        return [(int(step), float(loss)) for step, loss in _TOLD.findall(self.output(job))]

    def hurry(self) -> None:
        """Let the jobs of the folder make their remaining steps without a pause, after the last action of a test on them."""
        (self.folder / "hurry").touch()

    def until_trains(self, job: str) -> None:
        """Wait until the job is in the middle of its training, where the jobs of the folder go on slowly until `hurry`."""

        def trains() -> bool:
            assert self.cluster.state(job) not in {"COMPLETED", "FAILED"}, self.output(job)[-3000:]
            return ASKED_AFTER in dict(self.steps(job))

        self.cluster.until(trains, f"step {ASKED_AFTER} of {job}", self.starts_s)
        (self.folder / "asked").touch()

    def move(self, job: str) -> dict[str, Any]:
        """Move a job in the middle of its training to other nodes, where it trains to its end. Return the row of the preemption."""
        self.until_trains(job)
        before = self.cluster.nodes(job)
        self.cluster.headway.headway("move", job)
        row = self.cluster.until_stage(job, "started", "resumed", "called off", "over", timeout_s=self.starts_s)
        assert row["stage"] in {"started", "resumed"}, (row, self.output(job)[-3000:])
        assert not set(self.cluster.nodes(job)) & set(before), "it runs elsewhere"
        self.hurry()
        self.cluster.until_state(job, "COMPLETED", timeout_s=self.starts_s)
        assert self.cluster.show(job)["Restarts"] == "1"
        return row

    def until_refused(self, job: str, why: str) -> None:
        """Wait until Headway refuses to preempt the job for that reason, which it knows from the agent."""

        def refused() -> bool:
            done = self.cluster.headway.headway("preempt", job, check=False)
            assert done.returncode != 0, self.cluster.preemptions(job)
            return why in done.stderr

        self.cluster.until(refused, f"{job} {why}")

    def check_steps(self, job: str, *, lost: int = 0) -> None:
        """Check that the job continued where it had stopped, or at most `lost` steps before that.

        The last output of a killed program may be lost with its `srun`: up to `lost` steps after the last printed one may
        have been made and saved. The losses of the later steps show that they were.
        """
        steps = [step for step, _ in self.steps(job)]
        assert (steps[0], steps[-1]) == (0, STEPS - 1)
        jumps = [(before, step) for before, step in pairwise(steps) if step != before + 1]
        assert len(jumps) <= 1
        assert all(ASKED_AFTER - lost < step <= before + 1 + lost for before, step in jumps)

    def check_losses(self, job: str, whole: str) -> None:
        """Check that every step, also a repeated one, has the loss of the job that was left alone."""
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
    """A Python with the frameworks, installed once, below the folder of this Python, which the users of the nodes can see."""
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
    """The recipes with this Python; for a slow test with that of the frameworks."""
    slow = request.node.get_closest_marker("slow") is not None
    python = request.getfixturevalue("frameworks") if slow else Path(sys.prefix)
    folder = cluster.cluster.files.work / re.sub(r"\W+", "-", request.node.name)
    shutil.copytree(RECIPES, folder)
    # Longer steps: the commands that ask Headway take seconds on a busy machine, and are to come before the last step
    for program in folder.glob("*_train.py"):
        program.write_text(program.read_text().replace("time.sleep(0.05)", SLEEP))
    shutil.chown(folder, USER)
    yield Recipe(cluster, folder, python, FRAMEWORK_STARTS_S if slow else STARTS_S)
    cluster.cancel_all()


# --- preemptible jobs


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
def test_a_moved_job_goes_on_as_if_it_had_not_been_moved(recipe: Recipe, script: str, lost: int) -> None:
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


# --- jobs that cannot be preempted


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
    recipe.hurry()
    recipe.cluster.until_state(job, "COMPLETED", timeout_s=recipe.starts_s)
    assert recipe.cluster.show(job)["Restarts"] == "0"
    assert [step for step, _ in recipe.steps(job)] == list(range(STEPS))


def test_a_job_that_slurm_would_not_start_again_is_not_asked(recipe: Recipe) -> None:
    job = recipe.submit("trap.sh", "--no-requeue")
    recipe.until_trains(job)

    done = recipe.cluster.headway.headway("preempt", job, check=False)

    assert done.returncode != 0
    assert "--no-requeue" in done.stderr
    # And when another sender signals the job, it continues
    recipe.cluster.cluster.run("scancel", "--signal=USR1", "--full", job)
    recipe.hurry()
    recipe.cluster.until_state(job, "COMPLETED", timeout_s=recipe.starts_s)
    assert "Requested operation is presently disabled" in recipe.output(job)
    assert [step for step, _ in recipe.steps(job)] == list(range(STEPS))


def test_a_batch_script_without_a_trap_is_not_asked(recipe: Recipe) -> None:
    """The signal would end the script, which is why every recipe has a trap."""
    job = recipe.submit(ENDLESS.replace("trap : USR1\n", ""))
    recipe.until_trains(job)

    recipe.until_refused(job, "would be ended by USR1")
    assert recipe.cluster.state(job) == "RUNNING"

    # And when another sender signals the job, it fails

    recipe.cluster.cluster.run("scancel", "--signal=USR1", "--full", job)

    recipe.cluster.until_state(job, "FAILED")
