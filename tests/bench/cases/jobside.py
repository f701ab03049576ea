"""The cost of headway_job in a training: for models of about 1.5 ms a step, the hardest case, and of about 15 ms.

It measures the CPU time of one process's training thread, which other programs disturb less than the clock. Blocks of steps take
turns, with and without and without and with, so that a machine that becomes slower favours neither. The result is the median ratio.

Outside a profile window: with the hook among those that torch calls after a step, and without; an agent listens all the time.
What the hook does beside that thread (one turn a second) is reported as the process's other CPU time, against a process of its own.
Inside: with a window, of as many steps as an agent asks for unless it is configured otherwise, and without; a window's block pays
for its begin and end. Once as where torch.distributed is in use, with a profiler, and once as where it is not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import AF_UNIX, SHUT_RDWR, SOCK_SEQPACKET, socket
from statistics import median
from typing import Any, NamedTuple

import nodeagent
from nodeagent.config import AgentSettings
from nodeagent.wire import frames
from tests.bench.measuring.figures import Findings, spread

JOBSIDE = Path(nodeagent.__file__).parents[1] / "headway_job" / "src"
_STEPS_A_WINDOW = AgentSettings.model_fields["profile_steps"].default

_MODEL = """
import json, sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
width, rows = int(sys.argv[1]), int(sys.argv[2])
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = torch.randn(rows, width)
def step():
    optimizer.zero_grad()
    model(data).pow(2).mean().backward()
    optimizer.step()
for _ in range(50): step()
def in_turns(pairs, with_it, without):
    rows = []
    for number in range(pairs + 1):
        took = {True: 0.0, False: 0.0}
        for on in (True, False, False, True) if number % 2 else (False, True, True, False):
            took[on] += with_it() if on else without()
        rows.append((took[False] / 2, took[True] / 2))
    return rows[1:]  # the first pays for what is done once
"""
_OUTSIDE = (
    _MODEL
    + """
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
watching = dict(hooks)
assert len(watching) == 1
def block(hook):
    hooks.clear()
    hooks.update(hook)
    begin = time.thread_time()
    for _ in range(10): step()
    return (time.thread_time() - begin) / 10
print(json.dumps(in_turns(int(sys.argv[3]), lambda: block(watching), lambda: block({}))))
"""
)
_BESIDE = (
    _MODEL
    + """
begin, beside = time.perf_counter(), time.process_time() - time.thread_time()
while time.perf_counter() - begin < int(sys.argv[3]): step()
print(json.dumps((time.process_time() - time.thread_time() - beside) / (time.perf_counter() - begin)))
"""
)
_INSIDE = (
    _MODEL
    + """
from headway_job.profiling.kineto import recorder
from headway_job.profiling.window import Window
length, communicates = int(sys.argv[4]), bool(int(sys.argv[5]))
ended, steps = [], length
def watched():
    global steps
    window = Window(length, ended.append, recorder(communicates), with_queue=communicates)
    before, steps, begin = len(ended), 0, time.thread_time()
    while len(ended) == before:
        window.at_step()
        step()
        steps += 1
    return (time.thread_time() - begin) / steps
def plain():
    begin = time.thread_time()
    for _ in range(steps): step()
    return (time.thread_time() - begin) / steps
rows = in_turns(int(sys.argv[3]), watched, plain)
assert all(one is not None for one in ended)
print(json.dumps(rows))
"""
)
_IMPORT = """
import json, sys, time
import torch
assert "headway_job" not in sys.modules
begin = time.thread_time()
import headway_job
headway_job.begin()
print(json.dumps(time.thread_time() - begin))
"""
_CALL = """
import json, timeit
from headway_job.hook.step_counter import StepCounter, step_hook
class Optimizer: param_groups = []
optimizer, hook = Optimizer(), step_hook(StepCounter())
hook(optimizer, (), {})
print(json.dumps(min(timeit.repeat(lambda: hook(optimizer, (), {}), number=20000, repeat=20)) / 20000))
"""


class _Model(NamedTuple):
    width: int
    rows: int
    pairs: int
    """Number of pairs of blocks with windows in a whole run."""


_SMALL, _LARGER = _Model(64, 32, 100), _Model(256, 512, 15)


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("jobside")
    with tempfile.TemporaryDirectory() as folder, _agent(Path(folder) / "job.sock") as path:
        _outside(findings, path, _SMALL, pairs=100 if quick else 600)
        _outside(findings, path, _LARGER, pairs=15 if quick else 60)
        _beside(findings, path, pairs=1 if quick else 3)
        for model in (_SMALL, _LARGER):
            for communicates in (True, False):
                _inside(findings, path, model, communicates=communicates, pairs=model.pairs // (5 if quick else 1))
        _import(findings, path, pairs=3 if quick else 10)
        _call(findings, path)
    return findings


def _outside(findings: Findings, path: str, model: _Model, pairs: int) -> None:
    _add(findings, "step time outside a window", 1.0, _run(_OUTSIDE, path, *model[:2], pairs))


def _beside(findings: Findings, path: str, pairs: int) -> None:
    added = [100 * (_run(_BESIDE, path, *_SMALL[:2], 10) - _run(_BESIDE, None, *_SMALL[:2], 10)) for _ in range(pairs)]
    findings.add("CPU beside the training", median(added), "%", note=f"of one core; {spread(added)}")


def _inside(findings: Findings, path: str, model: _Model, *, communicates: bool, pairs: int) -> None:
    rows = _run(_INSIDE, path, *model[:2], pairs, _STEPS_A_WINDOW, int(communicates))
    name = "step time inside a window" if communicates else "step time inside a window, one process"
    _add(findings, name, 5.0, rows, f"of {_STEPS_A_WINDOW} steps or more, its begin and end included; ")


def _add(findings: Findings, name: str, target: float, rows: list[tuple[float, float]], note: str = "") -> None:
    """Add the figures. `rows` has seconds of a step without and with the measured part."""
    ratios = [watched / plain for plain, watched in rows]
    step_ms = median(plain for plain, _ in rows) * 1e3
    name = f"{name}, {'small' if step_ms < 5 else 'larger'} model"
    findings.add(
        name, 100 * (median(ratios) - 1), "%", target, f"{note}ratios: {spread(ratios)}; a step is {step_ms:.2f} ms"
    )
    findings.keep(f"{name}, ratio", ratios)


def _import(findings: Findings, path: str, pairs: int) -> None:
    """Measure by how much the import of torch takes longer. Nothing is compiled, as in a folder that cannot be written."""
    added = [_run(_IMPORT, path, switch="0") * 1e3 for _ in range(pairs)]
    findings.add("import of torch, longer by", median(added), "ms", note=spread(added))


def _call(findings: Findings, path: str) -> None:
    findings.add("one call of the hook", _run(_CALL, path) * 1e9, "ns", note="the least of 20")


def _run(program: str, path: str | None, *arguments: int, switch: str = "1") -> Any:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment.update(PYTHONPATH=str(JOBSIDE), HEADWAY_JOB_SOCKET=path, TORCH_DEVICE_BACKEND_AUTOLOAD=switch)
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=environment, check=True)
    return json.loads(done.stdout)


@contextmanager
def _agent(path: Path) -> Iterator[str]:
    """Play an agent that welcomes, requests no window, and reads."""

    def serve(peer: socket) -> None:
        with peer:
            try:
                peer.send(frames.welcome(0, 1.0, 0))
                while peer.recv(frames.MAX_FRAME_BYTES):
                    pass
            except ConnectionError:
                return

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(peer,), daemon=True).start()

    with socket(AF_UNIX, SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield str(path)
        listener.shutdown(SHUT_RDWR)


if __name__ == "__main__":
    print(json.dumps([figure.as_json() for figure in run(quick="--quick" in sys.argv).figures], indent=1))
