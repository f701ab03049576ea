"""headway-policy train and evaluate, from the command line to the weights, by the worked example of docs/policies."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from policies.serving.client import PolicyClient
from tests.unit.policies.learned.commands import (
    ROOT,
    headway_policy,
    in_a_new_interpreter,
    install,
    install_example,
    started,
)
from tests.unit.policies.processes import eventually, running, serve_command
from tests.unit.policies.states.cluster import Job, Node, cluster

pytestmark = pytest.mark.timeout(300)  # several processes that import torch, on a machine that others use too
SMALL = ("learned-order", "--rounds", 3, "--set", "tries=2", "--seed", 5)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return install_example(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def alone(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed training."""
    folder = tmp_path_factory.mktemp("alone")
    headway_policy("train", *SMALL, "--out", "run", env=env, cwd=folder)
    return folder / "run"


def best(folder: Path) -> list[bytes]:
    return [(folder / "best" / f"learned-order.{kind}").read_bytes() for kind in ("safetensors", "json")]


def test_the_worked_example_is_short_and_is_quoted_in_the_docs() -> None:
    code = (ROOT / "examples/learned-order/learned_order.py").read_text()
    assert code.count("\n") < 60
    assert f"```python\n{code}```\n" in (ROOT / "docs/policies/README.md").read_text()


def test_a_training_leaves_weights_card_and_figures_and_says_how_to_judge_them(alone: Path) -> None:
    card = json.loads((alone / "best/learned-order.json").read_text())
    assert card["seed"] == 5
    assert card["recipe"] == {"rounds": 3, "tries": 2, "step": 0.3}
    assert card["data"] == "sched2, 60 jobs, bursty; on 2x8; slowdown locality"
    assert card["results"]["avg_jct_s"] == card["results"]["validation"] > 0
    assert list((alone / "events").glob("events.out.tfevents.*"))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_another_one_others(
    alone: Path, env: dict[str, str], tmp_path: Path
) -> None:
    reported = headway_policy("train", *SMALL, "--out", "again", "--json", env=env, cwd=tmp_path)
    assert best(tmp_path / "again") == best(alone)
    facts = json.loads(reported.stdout)
    assert facts["weights"] == "again/best/learned-order.safetensors"
    assert facts["card"] == json.loads(best(alone)[1])
    assert "training 2/3: validation" in reported.stderr
    headway_policy("train", *SMALL[:-1], 6, "--out", "other", env=env, cwd=tmp_path)
    assert best(tmp_path / "other")[0] != best(alone)[0]


def test_a_training_that_is_killed_goes_on_to_the_same_weights(
    alone: Path, env: dict[str, str], tmp_path: Path
) -> None:
    command = ("train", *SMALL, "--out", "run", "--point-every", 0)
    process = started(*command, env=env, cwd=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("training 1/3"):
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "run/state/point").exists()
    reported = headway_policy(*command, "--resume", env=env, cwd=tmp_path)
    assert "continues after round" in reported.stderr
    assert best(tmp_path / "run") == best(alone)


SEVERAL = ("train", *SMALL, "--seeds", 2, "--out", "runs", "--point-every", 0)


@pytest.mark.slow  # where a seed fails, two are trained side by side too
def test_several_seeds_at_once_give_the_weights_of_each_alone(env: dict[str, str], alone: Path, tmp_path: Path) -> None:
    reported = headway_policy(*SEVERAL, "--json", env=env, cwd=tmp_path)
    facts = json.loads(reported.stdout)
    assert [each["seed"] for each in facts["trainings"]] == [5, 6]
    assert [each["folder"] for each in facts["trainings"]] == ["runs/seed-5", "runs/seed-6"]
    assert facts["validation"]["ci95"] is not None
    assert best(tmp_path / "runs/seed-5") == best(alone)
    assert best(tmp_path / "runs/seed-6") != best(alone)
    assert "seed 6: " in reported.stderr


@pytest.mark.slow
def test_several_seeds_that_are_stopped_go_on_to_the_same_weights(
    env: dict[str, str], alone: Path, tmp_path: Path
) -> None:
    process = started(*SEVERAL, env=env, cwd=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if "training 0/3" in line:
            process.send_signal(signal.SIGTERM)
            break
    with process:
        said = process.stderr.read()  # `communicate` would lose what is in its buffer
    assert process.returncode == 130
    assert "continue with --resume" in said
    headway_policy(*SEVERAL, "--resume", env=env, cwd=tmp_path)
    assert best(tmp_path / "runs/seed-5") == best(alone)


@pytest.mark.slow
def test_a_seed_that_fails_is_reported(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "runs/seed-1").mkdir(parents=True)
    (tmp_path / "runs/seed-1/thesis.tex").write_text("mine")
    command = ("train", "learned-order", "--rounds", 1, "--set", "tries=2", "--seeds", 2, "--out", "runs")
    said = headway_policy(*command, env=env, cwd=tmp_path, code=1).stderr.splitlines()
    assert said[-1].startswith("headway-policy train: seed 1: runs/seed-1: the folder contains thesis.tex")
    assert (tmp_path / "runs/seed-0/best/learned-order.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["--submit needs sbatch"]),
        (("--slurm", "partition"), ["--slurm 'partition'", "NAME=VALUE"]),
    ],
)
def test_jobs_that_cannot_be_submitted_are_reported(
    env: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    pytest.importorskip("submitit", reason="jobs are submitted through submitit")
    nowhere = env | {"PATH": str(tmp_path)}
    said = headway_policy("train", *SMALL, "--submit", *arguments, env=nowhere, cwd=tmp_path, code=1).stderr
    assert said.startswith("headway-policy train: ")
    assert all(word in said for word in words)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_training_says_how_to_continue(
    env: dict[str, str], alone: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = ("train", *SMALL, "--out", "run")
    process = started(*command, env=env, cwd=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("training 0/3"):
            # To all its processes, as a terminal, Slurm and systemd do.
            os.killpg(process.pid, number)
            break
    with process:
        said = process.stderr.read()  # `communicate` would lose what is in its buffer
    assert process.returncode == 130
    assert "continue with --resume" in said
    headway_policy(*command, "--resume", env=env, cwd=tmp_path)
    assert best(tmp_path / "run") == best(alone)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("learned-odor",), ["no system is named 'learned-odor'", "learned-order"]),
        (("learned-order", "--set", "tires=3"), ["no field 'tires'", "rounds, tries, step"]),
        (("learned-order", "--engine", "jax"), ["no engine 'jax'", "house or sb3"]),
        (("learned-order", "--engine", "sb3"), ["does not learn from environments alone"]),
        (("learned-order", "--device", "cuda"), ["learned-order trains on cpu, not on 'cuda'"]),
        (("learned-order", "--traces", "none.csv"), ["none.csv"]),
        (("learned-order", "--cluster", "many"), ["'many' is not a cluster"]),
        (("learned-order", "--out", "/proc/here"), ["/proc/here", "give a folder that you can write to"]),
        (("learned-order", "--out", "nothing", "--resume"), ["no training to continue"]),
    ],
)
def test_an_error_is_one_line(
    env: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    said = headway_policy("train", *arguments, env=env, cwd=tmp_path, code=1).stderr.splitlines()
    assert said[-1].startswith("headway-policy train: ")
    assert all(word in said[-1] for word in words)
    assert not any("Traceback" in line for line in said)


def test_a_folder_with_other_files_is_not_used(env: dict[str, str], alone: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    said = headway_policy("train", *SMALL, "--out", tmp_path, env=env, cwd=tmp_path, code=1).stderr
    assert "the folder contains thesis.tex" in said
    before = best(alone)
    said = headway_policy("train", *SMALL, "--out", alone, env=env, cwd=tmp_path, code=1).stderr
    assert "continue that training (--resume)" in said
    said = headway_policy(
        "train", *SMALL, "--set", "step=0.5", "--out", alone, "--resume", env=env, cwd=tmp_path, code=1
    )
    assert "card.recipe.step was 0.3, is 0.5" in said.stderr
    assert best(alone) == before


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    site = tmp_path / "site"
    env = install_example(site)
    # Python runs it when it starts; an import of torch then fails as if it were not there.
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    done = in_a_new_interpreter("train", "learned-order", env=env, cwd=tmp_path)
    said = done.stderr
    assert done.returncode == 1, said
    assert "training needs torch" in said
    assert "pip install 'headway-scheduler[train,sim]'" in said


def test_policies_are_evaluated_on_the_same_traces(alone: Path, env: dict[str, str], tmp_path: Path) -> None:
    command = ("evaluate", "fifo", "sjf", "learned-order", "--weights", alone, "--seeds", 3)
    reported = json.loads(headway_policy(*command, "--json", env=env, cwd=tmp_path).stdout)
    assert reported["traces"] == ["sched2-1000", "sched2-1001", "sched2-1002"]
    rows = {row["policy"]: row for row in reported["policies"]}
    assert list(rows) == ["fifo", "sjf", "learned-order"]
    assert rows["fifo"]["change"] is None
    assert rows["sjf"]["change"]["mean"] < -0.05
    assert rows["sjf"]["avg_jct_s"]["mean"] < rows["fifo"]["avg_jct_s"]["mean"]
    assert rows["sjf"]["avg_jct_s"]["ci95"] > 0
    assert all(row["unfinished"] == 0 for row in rows.values())
    table = headway_policy(*command, env=env, cwd=tmp_path).stdout
    assert "JCT against fifo" in table
    assert f"{rows['sjf']['change']['mean']:+.1%}" in table


def test_policies_are_evaluated_on_the_part_of_a_trace_that_no_training_uses(
    env: dict[str, str], tmp_path: Path
) -> None:
    rows = ["job_id,submit_time_s,num_gpus,duration_s", *(f"{job},{job * 60},{1 + job % 4},600" for job in range(100))]
    (tmp_path / "mine.csv").write_text("\n".join(rows) + "\n")
    command = ("evaluate", "fifo", "srtf", "--traces", "mine.csv", "--cluster", "1x8", "--json")
    last = json.loads(headway_policy(*command, env=env, cwd=tmp_path).stdout)
    whole = json.loads(headway_policy(*command, "--whole-trace", env=env, cwd=tmp_path).stdout)
    assert (last["traces"], whole["traces"]) == (["mine, jobs 81 to 100"], ["mine, jobs 11 to 100"])
    assert last["policies"][0]["avg_jct_s"]["ci95"] is None
    assert last["policies"][0]["makespan_s"]["mean"] < whole["policies"][0]["makespan_s"]["mean"]
    assert "all for tests" in whole["data"]
    assert "begins as full as srtf has left the cluster" in last["runs"]
    # 2.5 GPUs for 10 minutes arrive in every minute: the queue of the first 80 jobs is there.
    assert last["policies"][0]["carried_avg_s"]["mean"] > 3600
    cut = json.loads(headway_policy(*command, "--windows", "--system", "learned-order", env=env, cwd=tmp_path).stdout)
    assert cut["traces"] == ["mine, jobs 81 to 100"]


async def test_trained_weights_are_served(alone: Path, env: dict[str, str], tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/policy.sock"
    state = cluster([Node(gpus=4)], [Job(gpus=3), Job(gpus=1), Job(gpus=2)])
    with running(*serve_command(f"learned-order:weights={alone}", address), env=env):
        async with PolicyClient(address) as client:
            await eventually(client.healthy)
            assert (await client.describe()).name == "learned-order"
            first, second = [await client.decide(state, 10.0) for _ in range(2)]
    assert first == second
    assert sorted(first.queue) == [0, 1, 2]
    assert 0 < sum(placement.num_gpus for placement in first.allocation.values()) <= 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fifo", "sjf"), ["there is nothing to run the policies on", "--system", "learned-order"]),
        (("fifo", "fifo"), ["fifo is given twice"]),
        (("fifo", "lifo"), ["no policy is named 'lifo'"]),
        (("fifo", "--weights", "x", "--system", "learned-order"), ["none of fifo has weights"]),
        (("learned-order", "--weights", "nowhere"), ["nowhere", "no such file"]),
        (("fifo", "--traces", "a.csv", "--cluster", "2x8", "--set", "a=b"), ["--set", "--system"]),
    ],
)
def test_a_comparison_that_cannot_be_made_is_an_error(
    env: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    said = headway_policy("evaluate", *arguments, env=env, cwd=tmp_path, code=1).stderr
    assert said.startswith("headway-policy evaluate: ")
    assert said.count("\n") == 1
    assert all(word in said for word in words)


def test_a_policy_that_leaves_jobs_unfinished_gets_no_figures(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "from policies.api import Decision, PolicySpec\n"
        "from policies.selection import present_placements\n"
        "class Lazy:\n"
        "    spec = PolicySpec('lazy', 'a test')\n"
        "    def decide(self, state):\n"
        "        return Decision(present_placements(state, state.running))\n"
    )
    env = install(tmp_path / "site", {"headway.policies": {"lazy": "lazy:Lazy"}}, tmp_path)
    rows = ["job_id,submit_time_s,num_gpus,duration_s", *(f"{job},{job * 60},1,600" for job in range(40))]
    (tmp_path / "mine.csv").write_text("\n".join(rows) + "\n")
    command = ("evaluate", "fifo", "lazy", "--traces", "mine.csv", "--cluster", "1x8")
    reported = json.loads(headway_policy(*command, "--json", env=env, cwd=tmp_path).stdout)
    # Eight jobs of the last fifth, and six that waited at its begin: 10 GPUs for 10 minutes arrive where there are 8.
    assert reported["policies"][1]["unfinished"] == 14
    assert reported["policies"][1]["avg_jct_s"] is None
    assert reported["policies"][1]["change"] is None
    assert "lazy left 14 jobs unfinished" in headway_policy(*command, env=env, cwd=tmp_path).stdout
