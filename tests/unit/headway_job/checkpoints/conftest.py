"""The fork server, which all tests share, and the runs that it starts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[4]
JOBSIDE = ROOT / "headway_job" / "src"


class Ended:
    """A run that has ended: what its ranks reported, and their exit codes."""

    def __init__(self, out: Path, ends: list[int]) -> None:
        self.ends = ends
        self.rows: list[list[dict[str, Any]]] = []
        self.logs: list[str] = []
        for rank in range(len(ends)):
            report = out / f"reported-{rank}"
            lines = report.read_text().split("\n")[:-1] if report.exists() else []
            self.rows.append([json.loads(line) for line in lines])
            log = out / f"log-{rank}"
            self.logs.append(log.read_text() if log.exists() else "")

    def reported(self, name: str, rank: int = 0) -> Any:
        """Return the last value that a rank reported under a name."""
        found = [row[name] for row in self.rows[rank] if name in row]
        assert found, f"rank {rank} did not report {name}: {self.logs[rank]}"
        return found[-1]

    def losses(self, rank: int = 0) -> dict[int, float]:
        """Return the losses by step."""
        return {row["step"]: row["loss"] for row in self.rows[rank] if "step" in row}


class Started:
    """A run that has started."""

    def __init__(self, out: Path, pids: list[int], wait: Callable[[], list[int]]) -> None:
        self.out = out
        self.pids = pids
        self.ended = False
        self._wait = wait

    def so_far(self) -> Ended:
        """Return what its ranks have reported so far."""
        return Ended(self.out, [0] * len(self.pids))

    def wait(self) -> Ended:
        """Wait until all ranks have ended."""
        ends, self.ended = self._wait(), True
        return Ended(self.out, ends)


class ForkServer:
    """Runs small programs, whose ranks are forked from one process that has imported torch."""

    def __init__(self, folder: Path) -> None:
        env = {
            **{name: of for name, of in os.environ.items() if not name.startswith(("SLURM_", "HEADWAY_"))},
            "PYTHONPATH": f"{ROOT}{os.pathsep}{JOBSIDE}",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        self._folder = folder
        self._count = itertools.count()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.headway_job.checkpoints.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=ROOT,
        )

    def run(self, name: str, world: int = 1, **args: Any) -> Ended:
        """Run a program of training.py until its end."""
        return self.begin(name, world, **args).wait()

    def begin(self, name: str, world: int = 1, **args: Any) -> Started:
        """Start a program, and return at once. Start no other one before it has ended."""
        out = self._folder / f"run-{next(self._count)}"
        out.mkdir()
        assert self._process.stdin is not None
        order = {"name": name, "world": world, "out": str(out), "args": args}
        self._process.stdin.write(json.dumps(order, default=str) + "\n")
        self._process.stdin.flush()
        pids = self._answer()["pids"]
        return Started(out, pids, lambda: list(self._answer()["ends"]))

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    fork_server = ForkServer(tmp_path_factory.mktemp("fork_server"))
    yield fork_server
    fork_server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"
