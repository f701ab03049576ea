"""headway-policy train contention-rl, on a small trace: a system with networks and environments in processes, as a user has it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from tests.unit.policies.learned.commands import headway_policy, install, started

pytestmark = pytest.mark.timeout(300)  # several processes that import torch, on a machine that others use too
MODELS = ("GraphSage", "MobileNetV3", "DLRM", "Transformer-XL", "FSDP", "MoE")
TINY = ("--rounds", 2, "--set", "envs=2", "--set", "steps=16", "--set", "batches=1", "--set", "hidden=8")
WHERE = ("--traces", "mine.csv", "--cluster", "2x4")
TRAIN = ("train", "contention-rl", *WHERE, *TINY, "--seed", 3)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With the policy of the system, whether its own weights come with Headway or not."""
    own = {"headway.policies": {"own-rl-hybrid": "policies.learned.contention_rl.policy:RlHybrid"}}
    return install(tmp_path_factory.mktemp("site"), own)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace."""
    folder = tmp_path_factory.mktemp("here")
    rows = ["job_id,submit_time_s,num_gpus,duration_s,model"]
    rows += [f"{job},{job * 300},{(1, 2, 4)[job % 3]},{1800 + 600 * (job % 5)},{MODELS[job % 6]}" for job in range(45)]
    (folder / "mine.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def alone(env: dict[str, str], here: Path) -> Path:
    """The folder of an undisturbed training."""
    headway_policy(*TRAIN, "--out", "alone", env=env, cwd=here)
    return here / "alone"


def best(folder: Path, name: str = "contention-rl") -> list[bytes]:
    return [(folder / "best" / f"{name}.{kind}").read_bytes() for kind in ("safetensors", "json")]


@pytest.mark.slow  # as for the worked example, and for each system in its own process
def test_a_killed_training_continues_to_the_same_weights(env: dict[str, str], here: Path, alone: Path) -> None:
    process = started(*TRAIN, "--out", "run", "--point-every", 0, env=env, cwd=here)
    assert process.stderr is not None
    for line in process.stderr:
        if "training 0/2" in line:
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    headway_policy(*TRAIN, "--out", "run", "--resume", env=env, cwd=here)
    assert best(here / "run") == best(alone)
    card = json.loads(best(alone)[1])
    assert card["data"].startswith(
        "mine.csv (45 jobs: the first 60%, the next 20% for validation, the rest for tests); on 2x4; "
    )


@pytest.mark.slow
def test_trained_weights_decide_about_unseen_traces(env: dict[str, str], here: Path, alone: Path) -> None:
    command = (
        "evaluate",
        "fifo-skip",
        "own-rl-hybrid",
        "--weights",
        alone,
        *WHERE,
        "--slowdown",
        "pair-table",
        "--json",
    )
    rows = json.loads(headway_policy(*command, env=env, cwd=here).stdout)["policies"]
    assert [row["policy"] for row in rows] == ["fifo-skip", "own-rl-hybrid"]
    assert all(row["unfinished"] == 0 and row["avg_jct_s"]["mean"] > 1800 for row in rows)


def test_a_cluster_that_the_agent_does_not_know_is_an_error(env: dict[str, str], here: Path, alone: Path) -> None:
    command = ("evaluate", "own-rl-hybrid", "--weights", alone, "--traces", "mine.csv", "--cluster", "3x4")
    said = headway_policy(*command, "--slowdown", "none", env=env, cwd=here, code=1).stderr
    assert "was trained for 2 nodes of at most 4 GPUs" in said


def test_another_engine_trains_on_the_same_environments(env: dict[str, str], here: Path) -> None:
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is another engine, and not needed otherwise")
    command = ("train", "contention-rl", *WHERE, *TINY[:4], "--engine", "sb3", "--out", "other", "--json")
    facts = json.loads(headway_policy(*command, env=env, cwd=here).stdout)
    assert facts["weights"] == "other/best/contention-rl-sb3.safetensors"
    assert facts["card"]["results"]["avg_jct_s"] > 1800
    judged = ("evaluate", "own-rl-hybrid:weights=other", *WHERE)
    assert "contention-rl" in headway_policy(*judged, env=env, cwd=here, code=1).stderr
