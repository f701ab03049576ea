"""On a real Slurm: however the policy server fails, the fallback still places jobs, and soon."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.processes import accepts
from slurm.testbed.programs import program
from tests.cluster.live import Live, live

ROGUE = Path(__file__).with_name("rogue_policy.py")
SOON_S = 2.0
TRIES = 5


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live(policy=None, fallback_policy="fifo", policy_deadline_s=0.5) as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    world.clear()
    if "policy" in world.headway.processes:
        world.headway.stop("policy", signal.SIGKILL)


def decided_by(world: Live, job: str) -> str:
    return str(world.headway.ask("why", job)["decisions"][0]["policy"])


def submit_and_see_it_run(world: Live) -> str:
    """Submit jobs until one is decided within the time limit of the fallback. Return its id.

    Other load on the machine delays some decisions, a slow policy server delays all of them; so one job in time is sufficient.
    """
    decided_s = []
    for _ in range(TRIES):
        time.sleep(1.1)  # slurmctld sees one bulk query a second: let the controller be free to look
        job = world.sbatch("--gres=gpu:2", seconds=1)
        world.until_state(job, "RUNNING", "COMPLETED")
        decided_s.append(world.headway.ask("why", job)["decisions"][0]["time_s"] - world.show_submit_s(job))
        if decided_s[-1] < SOON_S + 1.0:  # submit times are whole seconds
            return job
    raise AssertionError(f"decided only after {decided_s} s")


@pytest.mark.parametrize(
    "kind",
    [
        "unknown-job", "unknown-node", "overcommitted", "half-a-gang", "wrong-sequence", "nan", "junk", "slow", "raises",
        "silent-describe",
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_the_fallback_decides(world: Live, kind: str) -> None:
    before = world.headway.ask("status")
    socket = world.headway.runtime_dir / "policy.sock"
    socket.unlink(missing_ok=True)  # of a server that was killed
    world.headway.start("policy", [sys.executable, str(ROGUE), world.headway.policy_address, kind])
    world.until(lambda: accepts(socket), "the rogue listens")
    job = submit_and_see_it_run(world)
    assert decided_by(world, job) == "fallback:fifo"
    after = world.headway.ask("status")
    assert after["fallbacks"] > before["fallbacks"]
    assert after["policy"]["last_error"]


def test_a_killed_server_is_missed_and_found_again(world: Live) -> None:
    # given a policy server that decides
    world.headway.start_policy("sjf")
    world.until(lambda: decided_by(world, submit_and_see_it_run(world)) == "sjf", "the policy decides", 60)
    # when it is killed
    world.headway.stop("policy", signal.SIGKILL)
    assert decided_by(world, submit_and_see_it_run(world)) == "fallback:fifo"
    # then it decides again after its return
    world.headway.start_policy("sjf")
    world.until(lambda: decided_by(world, submit_and_see_it_run(world)) == "sjf", "it decides again", 60)


def test_a_hung_server_costs_its_deadline_and_no_more(world: Live) -> None:
    world.headway.start_policy("sjf")
    world.until(lambda: decided_by(world, submit_and_see_it_run(world)) == "sjf", "the policy decides", 60)
    world.headway.send("policy", signal.SIGSTOP)
    assert decided_by(world, submit_and_see_it_run(world)) == "fallback:fifo"


def test_a_bad_swap_is_refused_and_the_old_policy_stays(world: Live) -> None:
    world.headway.start_policy("sjf")
    world.until(lambda: decided_by(world, submit_and_see_it_run(world)) == "sjf", "the policy decides", 60)
    refused = world.headway.headway("policy", "use", "unix:///nowhere.sock", check=False)
    assert refused.returncode == 1
    assert "nowhere.sock" in refused.stdout + refused.stderr
    assert world.headway.ask("policy", "show")["name"] == "sjf"
    other = f"unix://{world.headway.runtime_dir}/other.sock"
    world.headway.start("other", [sys.executable, str(ROGUE), other, "raises"])
    world.until(lambda: accepts(world.headway.runtime_dir / "other.sock"), "the other listens")
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=300)
    world.until_state(blocker, "RUNNING")
    waiting = world.sbatch("--gres=gpu:1", seconds=1)
    world.until_known(waiting)
    assert world.headway.headway("policy", "use", other, check=False).returncode == 1
    assert world.headway.ask("policy", "show")["name"] == "sjf"
    world.headway.stop("other", signal.SIGKILL)


def test_a_good_swap_takes_over(world: Live) -> None:
    world.headway.start_policy("sjf")
    other = f"unix://{world.headway.runtime_dir}/better.sock"
    world.headway.start("better", [*program("headway-policy"), "serve", "--policy", "las", "--listen", other])
    world.until(lambda: accepts(world.headway.runtime_dir / "better.sock"), "the better one listens")
    # Each of its answers must come within the half second that the policy has here, which a busy machine delays.
    world.until(lambda: not world.headway.headway("policy", "use", other, check=False).returncode, "it is accepted")
    world.until(lambda: decided_by(world, submit_and_see_it_run(world)) == "las", "the better one decides", 60)
    back = world.headway.policy_address
    world.until(lambda: not world.headway.headway("policy", "use", back, check=False).returncode, "the first is back")
    world.headway.stop("better")
