"""`headway-minicluster up --headway`: a cluster with Headway that stays up, and the commands on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm.minicluster.spec import STATE_ROOT
from slurm.processes import ProcessRef
from slurm.testbed.programs import program
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.minicluster.commands import CLI, traces, wait_for

SERVICES = ["policy", "controller", "watchdog", "agent@n1", "agent@n2"]


class Trial:
    """One cluster, as someone at a terminal uses it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.name: str = facts["name"]
        self.facts = facts
        self.folder = Path(facts["headway"]["folder"])

    def run(self, *words: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command with the variables that `up` has printed."""
        environment = {**os.environ, **self.facts["env"]}
        return subprocess.run(
            words, capture_output=True, text=True, check=False, env=environment, user=user, cwd="/tmp", timeout=120
        )

    def minicluster(self, *words: str) -> subprocess.CompletedProcess[str]:
        return minicluster(words[0], "--name", self.name, *words[1:])

    def headway(self, *words: str) -> dict[str, Any]:
        done = self.run(*program("headway"), *words, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def sbatch(self, *words: str) -> str:
        done = self.run("sbatch", "--parsable", "--output=/dev/null", *words, user="daemon")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def services(self) -> dict[str, int | None]:
        (cluster,) = json.loads(self.minicluster("status", "--json").stdout)["clusters"]
        found: dict[str, int | None] = cluster["headway"]["services"]
        return found


def minicluster(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *words], capture_output=True, text=True, check=False, timeout=200)


def booted(name: str, *words: str) -> Trial:
    done = minicluster("up", "--name", name, "--nodes", "2", "--gpus", "2", "--headway", "srtf", "--json", *words)
    assert done.returncode == 0, done.stderr
    return Trial(json.loads(done.stdout))


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    skip_unless_possible()
    name = unique_name()
    try:
        yield booted(name, "--agents")
    finally:
        minicluster("down", "--name", name)


@pytest.fixture
def name() -> Iterator[str]:
    skip_unless_possible()
    name = unique_name()
    yield name
    if traces(name):
        minicluster("down", "--name", name)


def test_jobs_of_sbatch_are_placed_by_the_policy_and_headway_needs_no_options(trial: Trial) -> None:
    # Given a job on each node, and one that has to wait
    jobs = [trial.sbatch("--gres=gpu:2", "--wrap", "sleep 600") for _ in range(3)]

    def known() -> bool:
        states = [entry["state"] for entry in trial.headway("queue")["entries"]]
        return states.count("running") == 2 and states.count("waiting") == 1

    wait_for(known, "two jobs run, one waits")
    # Then `headway` explains it, on this machine and on a node, and agents are connected
    status = trial.headway("status")
    assert status["policy"]["name"] == "srtf"
    assert len([node for node in trial.headway("queue")["entries"] if node["why"]]) == 3
    inside = trial.minicluster("exec", "n1", "--", *program("headway"), "why", jobs[0], "--json")
    assert json.loads(inside.stdout)["job_id"] == jobs[0], inside.stderr
    with urllib.request.urlopen(f"http://{trial.facts['headway']['metrics_address']}/metrics", timeout=60) as page:
        assert b"headway_agents" in page.read()
    trial.run("scancel", *jobs)


def test_status_shows_every_service(trial: Trial) -> None:
    services = trial.services()
    assert list(services) == SERVICES
    assert None not in services.values()
    text = trial.minicluster("status").stdout
    assert "Headway    policy srtf; all services run" in text
    assert f"HEADWAY_CONFIG {trial.folder}/controller.toml" in text


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(service, marks=() if service == "controller" else pytest.mark.slow)  # all by the same code
        for service in SERVICES
    ],
)
def test_a_service_is_restarted_also_when_it_was_killed(trial: Trial, service: str) -> None:
    before = trial.services()
    for prepare in (lambda _: None, lambda ref: ref.send(signal.SIGKILL) and ref.wait_gone(60)):
        pid = trial.services()[service]
        ref = ProcessRef.of(pid) if pid is not None else None
        assert ref is not None
        prepare(ref)
        done = trial.minicluster("restart", service)
        assert done.returncode == 0, done.stderr
        assert service in done.stdout
        assert not ref.alive()
    after = trial.services()
    assert None not in after.values()
    assert [name for name in SERVICES if after[name] != before[name]] == [service]


def test_a_service_that_cannot_start_says_why(trial: Trial) -> None:
    config = trial.folder / "controller.toml"
    right = config.read_text()
    try:
        config.write_text(right + "partitons = 3\n")
        failed = trial.minicluster("restart", "controller")
    finally:
        config.write_text(right)
    assert failed.returncode == 1
    assert "the controller ended at its start" in failed.stderr
    assert "partitons" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "down: controller" in trial.minicluster("status").stdout
    assert trial.minicluster("restart", "controller").returncode == 0


def test_unknown_services_and_clusters_are_refused_with_those_that_there_are(trial: Trial) -> None:
    wrong = trial.minicluster("restart", "agent@n9")
    assert (wrong.returncode, "agent@n1, agent@n2" in wrong.stderr) == (1, True)
    again = trial.minicluster("up", "--headway", "srtf")
    assert again.returncode == 1
    assert f"already up, in {STATE_ROOT / trial.name}; `headway-minicluster down --name" in again.stderr
    assert None not in trial.services().values()  # it has not suffered


def test_without_root_the_boot_is_refused_with_the_mend() -> None:
    skip_unless_possible()
    # setpriv keeps the groups and the environment; the code must be readable by that user
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", *CLI, "up", "--headway", "srtf"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "root lacks CAP_NET_ADMIN" in done.stderr


def test_a_second_cluster_beside_the_first_one_and_one_without_agents(trial: Trial, name: str) -> None:
    # Given a second cluster with Headway, whose services use the same ports
    second = booted(name)
    assert list(second.services()) == SERVICES[:3]
    # When a job is submitted to each
    jobs = {each: each.sbatch("--gres=gpu:1", "--wrap", "sleep 600") for each in (trial, second)}
    # Then each controller knows its own
    for each, job in jobs.items():
        wait_for(lambda each=each: [e["job_id"] for e in each.headway("queue")["entries"]] == [job], "its own job")  # type: ignore[misc] # noqa: B023
    # And the end of one leaves the other as it was
    assert second.minicluster("down").returncode == 0
    assert traces(name) == []
    assert trial.headway("status")["policy"]["name"] == "srtf"
    trial.run("scancel", jobs[trial])


def test_a_cluster_without_headway_says_how_to_get_it(name: str) -> None:
    assert minicluster("up", "--name", name, "--nodes", "1").returncode == 0
    refused = minicluster("restart", "--name", name, "controller")
    assert refused.returncode == 1
    assert "up --headway POLICY" in refused.stderr
    (cluster,) = json.loads(minicluster("status", "--name", name, "--json").stdout)["clusters"]
    assert cluster["headway"] is None


STAGES: dict[str, Callable[[Path], bool]] = {
    "the policy server listens": lambda folder: (folder / "headway" / "run" / "policy.sock").exists(),
    "an agent starts": lambda folder: (folder / "headway" / "agents" / "n1" / "agent.log").exists(),
}


INTERRUPTED = [(number, stage) for number in (signal.SIGKILL, signal.SIGINT) for stage in STAGES]
QUICK = {(signal.SIGKILL, "the policy server listens"), (signal.SIGINT, "an agent starts")}


@pytest.mark.parametrize(
    ("number", "stage"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in INTERRUPTED],
)
def test_an_up_that_is_interrupted_leaves_nothing_after_down(name: str, stage: str, number: signal.Signals) -> None:
    argv = [*CLI, "up", "--name", name, "--nodes", "2", "--headway", "srtf", "--agents"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as boot:
        wait_for(lambda: STAGES[stage](STATE_ROOT / name), stage, interval_s=0.001, most_s=0.001)
        boot.send_signal(number)
        status = boot.wait(90)
    if number is signal.SIGKILL:
        assert minicluster("down", "--name", name).returncode == 0
    else:
        assert status == 128 + number
    assert traces(name) == []


def test_down_ends_everything(name: str) -> None:
    there = booted(name, "--agents")
    pids = [pid for pid in there.services().values() if pid is not None]
    there.sbatch("--gres=gpu:2", "--wrap", "sleep 600")
    assert minicluster("down", "--name", name).returncode == 0
    assert traces(name) == []
    assert [pid for pid in pids if (ref := ProcessRef.of(pid)) is not None and ref.alive()] == []
    again = minicluster("down", "--name", name)
    assert (again.returncode, "no such cluster" in again.stderr) == (1, True)


def test_the_text_of_up_can_be_pasted_into_a_shell(name: str) -> None:
    done = minicluster("up", "--name", name, "--nodes", "1", "--headway", "fifo-skip")
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert lines[-1] == "headway queue"
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    folder = Path(sys.executable).parent
    script = "\n".join(["set -e", f"PATH=$PATH:{folder}", *lines])
    pasted = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert pasted.returncode == 0, pasted.stderr
    assert "Submitted batch job 1" in pasted.stdout
