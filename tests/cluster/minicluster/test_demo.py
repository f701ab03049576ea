"""A short `make demo` on a real Slurm: both runs complete, and nothing is left behind however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slurm.minicluster.host.network import NetworkNames
from slurm.minicluster.record import RUNTIME_ROOT
from slurm.minicluster.spec import STATE_ROOT
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.returning.job import EAGER_TORCH

REPOSITORY = Path(__file__).parents[3]
WHOLE_S = 600.0
"""Longest time for a whole short demonstration on a busy machine."""
ENDS_S = 90.0
"""Longest time for one to clear up."""
LESS_OF_TORCH = ("--preload", str(EAGER_TORCH))
"""Spares each of the 28 ranks of a short demonstration half of its CPU time, most of which torch takes to load."""


@pytest.fixture
def name() -> str:
    """A name with which a demonstration can run beside others."""
    skip_unless_possible()
    pytest.importorskip("torch", reason="the jobs train with PyTorch: `make setup` installs it")
    return unique_name()


class Demo:
    """A short demonstration as a process, with its output."""

    def __init__(self, name: str, folder: Path, *options: str) -> None:
        self.name = name
        self.said = folder / f"{name}.said"
        self.output = folder / f"{name}.json"
        with self.said.open("wb") as said, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slurm.demo", "--short", "--json", "--name", name, *options],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=said,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.said.read_text()

    def wait_for(self, words: str, timeout_s: float = 180.0) -> None:
        """Wait until these words are in its output."""
        deadline = time.monotonic() + timeout_s
        while words not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended. Return its status."""
        return self.process.wait(timeout_s)


@contextmanager
def demo(name: str, folder: Path, *options: str) -> Iterator[Demo]:
    """Start one. At the end of the context it is ended, with time to clear up."""
    running = Demo(name, folder, *options)
    try:
        yield running
    finally:
        assert running.process.stdin is not None
        running.process.stdin.close()
        with suppress(ProcessLookupError):
            running.process.send_signal(signal.SIGTERM)
        running.process.wait(ENDS_S)


def left_behind(name: str) -> list[str]:
    """Everything on this machine that has the name of the demonstration."""
    paths = [Path("/run") / name, STATE_ROOT / name, *RUNTIME_ROOT.glob(f"{name}.*")]
    paths.append(Path("/sys/class/net") / NetworkNames(name).host_link)
    paths += Path("/run/netns").glob(f"headway-{name}-*")
    found = [str(path) for path in paths if path.exists()]
    found += [line for line in Path("/proc/mounts").read_text(errors="replace").splitlines() if name in line]
    return found + [f"process {pid}: {words}" for pid, words in commands() if name in words]


def commands() -> Iterator[tuple[int, str]]:
    """Pids and command lines of all processes but this one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def wait_until_nothing_is_left(name: str, timeout_s: float = ENDS_S) -> None:
    deadline = time.monotonic() + timeout_s
    while left := left_behind(name):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


@pytest.mark.timeout(WHOLE_S + ENDS_S + 60)
@pytest.mark.parametrize("options", [LESS_OF_TORCH, pytest.param((), marks=pytest.mark.slow)], ids=["less", "all"])
def test_both_runs_complete_and_leave_nothing(name: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    with demo(name, tmp_path, *options) as running:
        status = running.wait(WHOLE_S)

    assert status == 0, running.text()
    found = json.loads(running.output.read_text())
    assert found["cluster"] == "real"
    assert found["headway"]["completed"]
    assert found["slurm"]["completed"]
    assert [job["job"] for job in found["jobs"]] == ["bert-a", "gpt", "sweep_0", "sweep_1", "resnet-c", "bert-d"]
    for job in found["jobs"]:
        for run in ("headway", "slurm"):
            assert job[run]["state"] == "COMPLETED", job
            assert job[run]["step_ms"] > 0, "the job trained, and reported it"
    assert left_behind(name) == []
    # and in Headway's half jobs ran where the policy had put them
    line = next(line for line in running.text().splitlines() if "bert-a     runs on" in line)
    assert "n[1-2]:6 (consolidated: 12 GPUs on 2 nodes" in line


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_page_shows_the_cluster_until_enter(name: str, tmp_path: Path) -> None:
    with demo(name, tmp_path, "--emulated", "--page") as running:
        running.wait_for("Press Enter")
        found = re.search(r"is at (http://127\.0\.0\.1:\d+/)\. Sign in with the token (\S+)", running.text())
        assert found is not None, running.text()
        request = urllib.request.Request(found[1], headers={"Authorization": f"Bearer {found[2]}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            overview = answer.read().decode()
        assert running.process.stdin is not None
        running.process.stdin.write(b"\n")
        running.process.stdin.flush()
        status = running.wait(ENDS_S)

    assert "srtf" in overview
    assert status == 0, running.text()
    assert left_behind(name) == []


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_a_second_one_is_refused_and_ctrl_c_twice_leaves_nothing(name: str, tmp_path: Path) -> None:
    with demo(name, tmp_path, *LESS_OF_TORCH) as running:
        running.wait_for("runs on")  # jobs of users are running

        second = subprocess.run(
            [sys.executable, "-m", "slurm.demo", "--short", "--name", name],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        running.process.send_signal(signal.SIGINT)
        status = running.wait(ENDS_S)

    assert second.returncode == 1
    assert "another `make demo` runs on this machine" in second.stderr
    assert status == 128 + signal.SIGINT, running.text()
    assert "Everything has been removed" in running.text()
    assert left_behind(name) == []


@pytest.mark.timeout(400)
def test_kill_9_leaves_nothing(name: str, tmp_path: Path) -> None:
    with demo(name, tmp_path, *LESS_OF_TORCH) as running:
        running.wait_for("runs on")

        running.process.kill()
        running.wait(ENDS_S)

    wait_until_nothing_is_left(name)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_sigterm_while_it_boots_leaves_nothing(name: str, tmp_path: Path) -> None:
    with demo(name, tmp_path, *LESS_OF_TORCH) as running:
        running.wait_for("Slurm is up")

        running.process.terminate()
        status = running.wait(ENDS_S)

    assert status == 128 + signal.SIGTERM, running.text()
    assert left_behind(name) == []
