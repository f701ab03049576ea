"""Training of several seeds at once, each in a process and folder of its own, for `headway-policy train --seeds N`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

from policies.errors import TrainingError, TrainingStoppedError
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.train import HOUSE, TrainingRequest
from policies.learned.weights.card import ModelCard

STOPPED = 130
"""Exit code of a training that was stopped by a signal and can continue."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def requests(request: TrainingRequest, count: int) -> list[TrainingRequest]:
    """Return requests for that training with its seed and the next ones; the folder of seed K is `seed-K` in the request's folder.

    With `resume`, a seed that had not begun begins.
    """
    every = [
        replace(request, seed=seed, folder=request.folder / f"seed-{seed}")
        for seed in range(request.seed, request.seed + count)
    ]
    return [replace(each, resume=request.resume and TrainingRun.is_in(each.folder)) for each in every]


def train_all(every: Sequence[TrainingRequest], processes: int, out: TextIO) -> list[ModelCard]:
    """Train all, at most `processes` at once; their output is written with their seeds. Returns the cards of the best weights.

    A signal is passed on to all, and they end after their present rounds: then this raises TrainingStoppedError. It raises
    TrainingError if one of them fails, after the others have ended.
    """
    waiting, running = list(every), list[_SeedProcess]()
    ended: list[_SeedProcess] = []
    with _signals_passed_on(running) as asked:
        while (waiting and not asked) or running:
            while waiting and len(running) < processes and not asked:
                running.append(_SeedProcess(waiting.pop(0), out))
                if asked:  # while it was started
                    running[-1].process.terminate()
            ended.append(_first_to_end(running))
    _check(ended, asked)
    return [_card(each) for each in every]


class _SeedProcess:
    """The process of one seed. Invariant: once `wait` has returned, all its output is written."""

    def __init__(self, request: TrainingRequest, out: TextIO) -> None:
        self.request = request
        self.last = ""
        # In a session of its own, so that the terminal's signals reach it only through this process, once.
        self.process = subprocess.Popen(
            arguments(request), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self._out = out
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        self._listener.join()
        return self.process.wait()

    @property
    def is_over(self) -> bool:
        """True if it has ended."""
        self._listener.join(0.1)
        return not self._listener.is_alive()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.last = line.strip()
            self._out.write(f"seed {self.request.seed}: {line}")
            self._out.flush()


def arguments(request: TrainingRequest) -> list[str]:
    """Return the command line of that training."""
    overrides = request.overrides
    words = [request.system, "--out", str(request.folder), "--seed", str(request.seed), "--device", request.device]
    words += ["--point-every", str(request.point_every_s)]
    words += [] if request.engine == HOUSE else ["--engine", request.engine]
    words += ["--resume"] if request.resume else []
    words += [] if request.rounds is None else ["--rounds", str(request.rounds)]
    for name, value in (("--cluster", overrides.cluster), ("--profiles", overrides.profiles)):
        words += [] if value is None else [name, value]
    for name, values in (
        ("--traces", overrides.traces),
        ("--slowdown", overrides.slowdown or ()),
        ("--set", request.settings),
    ):
        words += [word for value in values for word in (name, value)]
    return [sys.executable, "-c", "from policies.serving.cli.app import main; main()", "train", *words]


@contextmanager
def _signals_passed_on(running: Sequence[_SeedProcess]) -> Iterator[list[str]]:
    """Pass the first signal on to all running processes, inside the `with` block; yield the list of received signals."""
    asked: list[str] = []

    def pass_on(number: int, _frame: Any) -> None:
        asked.append(signal.Signals(number).name)
        for each in running:
            each.process.terminate()
        for other in _SIGNALS:
            signal.signal(other, before[other])

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in running:
            each.process.kill()


def _first_to_end(running: list[_SeedProcess]) -> _SeedProcess:
    while True:
        for each in running:
            if each.is_over:
                each.wait()
                running.remove(each)
                return each


def _check(ended: Sequence[_SeedProcess], asked: Sequence[str]) -> None:
    """Raise for the first seed that did not finish."""
    codes = {each.request.seed: each.wait() for each in ended}
    if asked or STOPPED in codes.values():
        raise TrainingStoppedError(f"stopped by {(asked or ['a signal'])[0]}; continue with --resume")
    for each in ended:
        if code := codes[each.request.seed]:
            said = each.last.removeprefix("headway-policy train: ") or f"exit code {code}"
            raise TrainingError(f"seed {each.request.seed}: {said}")


def _card(request: TrainingRequest) -> ModelCard:
    name = request.system if request.engine == HOUSE else f"{request.system}-{request.engine}"
    path = Path(request.folder) / "best" / f"{name}.json"
    return ModelCard.from_json(path.read_text(encoding="utf-8"), str(path))
