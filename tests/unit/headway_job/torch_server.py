"""Loads torch once, and then forks a process for each training program. Requests and answers are JSON lines.

A program has a process, a folder, an environment and a search path of its own. At its `import torch`, torch loads the backends, and
with them the hook, as in a new process; everything else of torch is there already. Tests of the start itself, of tracebacks and of
what is imported run new processes instead.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tests.forked_program import be_program
from tests.returning.job import EAGER_TORCH
from tests.unit.headway_job.agent import Agent, Program

ROOT = Path(__file__).resolve().parents[3]


class TorchServer:
    """The server as a child of the tests. Invariant: each request has been answered before the next one is sent."""

    def __init__(self) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "HEADWAY_"))}
        env |= {"PYTHONPATH": f"{EAGER_TORCH.parent}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # each program loads them by itself
        code = "from tests.unit.headway_job import torch_server; torch_server.serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT
        )

    def start(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path, err: Path) -> int:
        """Start a program with its arguments, which writes into these files, and return its process id."""
        order = {"argv": list(argv), "cwd": str(folder), "env": dict(environment), "out": str(out), "err": str(err)}
        self._send({"start": order})
        return self._answer()

    def wait(self, pid: int) -> int:
        """Wait for a program, and return its exit code; if the test is interrupted meanwhile, it is killed first."""
        self._send({"wait": pid})
        try:
            return self._answer()
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            self._answer()
            raise

    def _send(self, order: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


class ForkedProgram(Program):
    """A user's program whose process is forked from the server."""

    def __init__(self, server: TorchServer, folder: Path, agent: Agent | None) -> None:
        super().__init__(folder, agent)
        self._server = server

    def run_ranks(self, text: str, ranks: int) -> list[subprocess.CompletedProcess[str]]:
        """Run so many ranks at once, each with its rank as argument."""
        script, folder = self.write(text), self.folder
        outputs = [(folder / f"out-{rank}", folder / f"err-{rank}") for rank in range(ranks)]
        running: list[int] = []
        ended: list[subprocess.CompletedProcess[str]] = []
        try:
            for rank, (out, err) in enumerate(outputs):
                argv = [str(script), *([str(rank)] if ranks > 1 else [])]
                running.append(self._server.start(argv, folder, self.environment, out, err))
            for pid, (out, err) in zip(list(running), outputs, strict=True):
                running.remove(pid)
                code = self._server.wait(pid)
                ended.append(subprocess.CompletedProcess([str(script)], code, out.read_text(), err.read_text()))
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                self._server.wait(pid)
        return ended


# ---- in the server


def serve() -> None:
    """Load torch, and carry out requests until stdin is closed."""
    import eager_torch  # type: ignore[import-not-found]  # noqa: F401 - before torch
    import torch
    import torch.utils.data

    installed = [path for path in sys.path if path not in ("", *os.environ["PYTHONPATH"].split(os.pathsep))]
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _be(order["start"], torch, installed)
        print(pid, flush=True)


def _be(order: dict[str, Any], torch: ModuleType, installed: Sequence[str]) -> NoReturn:
    """Be the process of a program."""

    def run() -> None:
        _become(order, installed)
        _import_again(torch)
        script = order["argv"][0]
        program = sys.modules["__main__"] = ModuleType("__main__")
        program.__file__ = script
        exec(compile(Path(script).read_text(), script, "exec"), program.__dict__)

    be_program(run)


def _become(order: dict[str, Any], installed: Sequence[str]) -> None:
    """Take over the folder, the environment, the arguments and the search path of the program."""
    os.chdir(order["cwd"])
    for number, name in enumerate((os.devnull, order["out"], order["err"])):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(order["env"])
    script, *_ = sys.argv[:] = order["argv"]
    sys.path[:] = [str(Path(script).parent), *order["env"]["PYTHONPATH"].split(os.pathsep), *installed]


def _import_again(torch: ModuleType) -> None:
    """Let the next `import torch` find torch as it is, and load the backends as torch does at the end of its import."""
    spec = torch.__spec__

    class Again(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if name == "torch" else None

        def create_module(self, _: importlib.machinery.ModuleSpec) -> ModuleType:
            return torch

        def exec_module(self, module: ModuleType) -> None:
            module.__spec__ = spec
            sys.meta_path.remove(self)
            if module._is_device_backend_autoload_enabled():
                module._import_device_backends()

    sys.meta_path.insert(0, Again())
    del sys.modules["torch"]
