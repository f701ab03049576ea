"""What headway_job costs the training that it watches: a model of about a millisecond a step, the hardest case.

Outside a profile window: fresh processes in turns, with the folder on PYTHONPATH and an agent that listens, and without. Each
tells the CPU time of its training thread a step, which the machine's other work disturbs less than the clock; what the hook
does beside that thread (one turn a second) is told as the process's other CPU time. Pair by pair; the median of the ratios.

Inside: one process, blocks of steps in turns with a window and without; a window's block pays for its begin and end. Once as
where torch.distributed is in use, with a profiler, and once as where it is not.
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
from typing import Any

import nodeagent
from nodeagent import frames
from tests.bench.figures import Findings, spread

JOBSIDE = Path(nodeagent.__file__).parent / "jobside"
_STEPS_A_WINDOW = 50

_MODEL = """
import json, sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = torch.randn(32, 64)
def step():
    optimizer.zero_grad()
    model(data).pow(2).mean().backward()
    optimizer.step()
for _ in range(200): step()
"""
_OUTSIDE = (
    _MODEL
    + """
steps = int(sys.argv[1])
begin, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
for _ in range(steps): step()
thread, process, wall = time.thread_time() - thread, time.process_time() - process, time.perf_counter() - begin
print(json.dumps({"thread_s": thread / steps, "beside_s": (process - thread) / wall, "wall_s": wall / steps}))
"""
)
_INSIDE = (
    _MODEL
    + """
from headway_job.kineto import recorder
from headway_job.window import Window
pairs, count, length, communicates = [], int(sys.argv[1]), int(sys.argv[2]), bool(int(sys.argv[3]))
def block(window):
    begin = time.thread_time()
    for _ in range(length + 2):
        if window is not None: window.at_step()
        step()
    return (time.thread_time() - begin) / (length + 2)
ended = []
for number in range(count + 1):
    plain = block(None)
    watched = block(Window(length, ended.append, recorder(communicates), with_queue=communicates))
    if number: pairs.append((plain, watched))  # the first pays for what the profiler does once
assert all(one is not None for one in ended) and len(ended) == count + 1
print(json.dumps(pairs))
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
from headway_job.tally import Tally, step_hook
class Optimizer: param_groups = []
optimizer, hook = Optimizer(), step_hook(Tally())
hook(optimizer, (), {})
print(json.dumps(min(timeit.repeat(lambda: hook(optimizer, (), {}), number=20000, repeat=20)) / 20000))
"""


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("jobside")
    with tempfile.TemporaryDirectory() as folder, _agent(Path(folder) / "job.sock") as path:
        _outside(findings, path, pairs=4 if quick else 15, steps=2000 if quick else 4000)
        _inside(findings, path, communicates=True, pairs=20 if quick else 100)
        _inside(findings, path, communicates=False, pairs=20 if quick else 100)
        _import(findings, path, pairs=3 if quick else 10)
        _call(findings, path)
    return findings


def _outside(findings: Findings, path: str, pairs: int, steps: int) -> None:
    rows = [(_run(_OUTSIDE, None, steps), _run(_OUTSIDE, path, steps)) for _ in range(pairs)]
    ratios = [watched["thread_s"] / plain["thread_s"] for plain, watched in rows]
    step_ms = median(plain["thread_s"] for plain, _ in rows) * 1e3
    note = f"ratios: {spread(ratios)}; a step is {step_ms:.2f} ms"
    findings.add("step time outside a window", 100 * (median(ratios) - 1), "%", 1.0, note)
    beside = [100 * (watched["beside_s"] - plain["beside_s"]) for plain, watched in rows]
    findings.add("CPU beside the training", median(beside), "%", note="of one core")
    findings.keep("outside, ratio", ratios)


def _inside(findings: Findings, path: str, *, communicates: bool, pairs: int) -> None:
    rows = _run(_INSIDE, path, pairs, _STEPS_A_WINDOW, int(communicates))
    ratios = [watched / plain for plain, watched in rows]
    note = f"of {_STEPS_A_WINDOW} steps, its begin and end included; ratios: {spread(ratios)}"
    name = "inside a window" if communicates else "inside a window, one process"
    findings.add(f"step time {name}", 100 * (median(ratios) - 1), "%", 5.0, note)
    findings.keep(f"{name}, ratio", ratios)


def _import(findings: Findings, path: str, pairs: int) -> None:
    """What torch's import waits for; the rest is imported beside it. Not compiled, as where the folder cannot be written."""
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
    """Welcomes, asks for no window, and reads."""

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
