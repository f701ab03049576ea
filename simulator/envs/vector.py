"""Many environments at once: some in each of several worker processes.

    envs = ProcessVectorEnv(partial(ContentionEnv, branch="B"), 32)

A `gymnasium.vector.VectorEnv`: environments whose episode ends are reset automatically (in the next step, or in the same one with
`autoreset=AutoresetMode.SAME_STEP`). `action_masks()` returns all masks. A script that makes one needs the usual
`if __name__ == "__main__":`, because workers are new processes that import it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_space

from simulator.envs.base import Mask
from simulator.envs.shared_memory import ELAPSED, Array, Blocks, Observation
from simulator.envs.worker import CALL, CALL_EACH, CLOSE, RESET, Env, Infos, InProcessWorker, work
from simulator.envs.worker_pipe import WorkerPipe
from simulator.errors import SettingError, WorkerError

Stepped: TypeAlias = tuple[Observation, Array, Array, Array, dict[str, Any]]
_SPAWN = multiprocessing.get_context("spawn")
_CLOSE_S = 5.0
_EXIT_S = 0.5
"""Seconds for which an owner that exits without closing waits for a busy worker."""


class ProcessVectorEnv(VectorEnv[Any, Any, Array]):
    """Environments in worker processes. Invariants: row r of every batch belongs to environment r, and worker w has the rows
    `_rows[w]`; between two calls no worker is busy, unless `step_async` was called and `step_wait` was not.

    When a worker dies or raises, the call that notices it raises WorkerError and ends all workers, so nothing waits for ever. An
    interrupted call ends them too, because their answers would belong to no later call.
    """

    def __init__(
        self,
        make: Callable[[], Env],
        num_envs: int,
        *,
        workers: int | None = None,
        autoreset: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        """Start the workers; each makes its environments with `make`. By default there is a worker for each core. With 0 workers,
        environments run in this process, which is faster for a few small steps or while other programs use the cores.

        Raises SettingError for impossible numbers or spaces, WorkerError if an environment cannot be made.
        """
        workers = min(num_envs, _cores()) if workers is None else workers
        _check_options(num_envs, workers, autoreset)
        model = make()
        self.num_envs = num_envs
        self.spec = model.spec
        self.metadata = {**model.metadata, "autoreset_mode": autoreset}
        self.single_observation_space, self.single_action_space = model.observation_space, model.action_space
        self.observation_space = batch_space(model.observation_space, num_envs)
        self.action_space = batch_space(model.action_space, num_envs)
        blocks = Blocks.of(_SPAWN, num_envs, model)
        model.close()
        self._views = blocks.views()
        self._is_stepping = False
        self._at_exit: Callable[[], None] | None = None
        parts = max(workers, 1)
        self._rows = [range(num_envs * w // parts, num_envs * (w + 1) // parts) for w in range(parts)]
        self._pipes: list[WorkerPipe | InProcessWorker] = []
        self._processes: list[BaseProcess] = []
        if workers:
            self._start_workers(make, blocks, autoreset)
        else:
            self._pipes.append(InProcessWorker(make, num_envs, self._views, autoreset))

    def _start_workers(self, make: Callable[[], Env], blocks: Blocks, autoreset: AutoresetMode) -> None:
        """Start a process for each part of the rows, and wait until their environments are made."""
        with self._ended_on_error():
            for rows in self._rows:
                self._start_worker((CloudpickleWrapper(make), rows.start, len(rows), blocks, autoreset))
            self._answers()
        # Registered after multiprocessing's own exit handler, and so run before it: that would wait for the workers, which end
        # only when their pipes close.
        self._at_exit = partial(_let_go, weakref.ref(self))
        atexit.register(self._at_exit)

    def _start_worker(self, arguments: tuple[Any, ...]) -> None:
        """Start the process of the next worker; `arguments` are those of `work` behind its end of the pipe."""
        mine, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
        process.start()
        # Only the worker keeps its end of the pipe: if it dies, waiting for its answer ends at once.
        theirs.close()
        self._pipes.append(WorkerPipe(mine))
        self._processes.append(process)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in every environment; environment r gets the seed `seed + r`, or the r-th of several seeds."""
        self._check_idle("reset")
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
            seeds = [int(seed) + row for row in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise SettingError(f"there are {len(seeds)} seeds for {self.num_envs} environments; give one for each")
        answers = self._ask([(RESET, seeds[rows.start : rows.stop], options) for rows in self._rows])
        return self._views.observed(), self._infos(answers)

    def step(self, actions: npt.ArrayLike) -> Stepped:
        """Apply the action of every environment."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: npt.ArrayLike) -> None:
        """Let the workers step; `step_wait` returns the results."""
        self._check_idle("step")
        self._views.actions[:] = actions
        with self._ended_on_error():
            self._is_stepping = True
            for worker, pipe in enumerate(self._pipes):
                try:
                    pipe.signal()
                except OSError:
                    self._fail(worker, "")

    def step_wait(self) -> Stepped:
        """Return the results of `step_async`."""
        self._check_open("step")
        if not self._is_stepping:
            raise gymnasium.error.NoAsyncCallError("no step has begun; call step_async first", "step")
        with self._ended_on_error():
            infos = self._infos(self._answers())
            self._is_stepping = False
        views = self._views
        if (known := ~np.isnan(views.elapsed)).any():
            infos |= {ELAPSED: np.where(known, views.elapsed, 0.0), f"_{ELAPSED}": known}
        return views.observed(), views.rewards.copy(), views.terminated.copy(), views.truncated.copy(), infos

    def action_masks(self) -> Mask:
        """Return which actions are possible, a row for each environment."""
        if self._views.masks is None:
            raise SettingError("these environments have no action_masks")
        return self._views.masks.copy()

    def call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Return an attribute of each environment, or the result of calling it."""
        self._check_idle("call")
        answers = self._ask([(CALL, name, arguments)] * len(self._rows))
        return tuple(value for values in answers for value in values)

    def call_each(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Call a method of each environment, of environment r with the r-th of these arguments; return the results."""
        self._check_idle("call")
        if len(arguments) != self.num_envs:
            raise SettingError(
                f"there are arguments for {len(arguments)} of {self.num_envs} environments; give arguments for each"
            )
        answers = self._ask([(CALL_EACH, name, arguments[rows.start : rows.stop]) for rows in self._rows])
        return tuple(value for values in answers for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment."""
        return self.call(name)

    @property
    def processes(self) -> Sequence[BaseProcess]:
        """The worker processes."""
        return tuple(self._processes)

    def close_extras(self, *, timeout: float = _CLOSE_S, **_: Any) -> None:
        """Close the workers; kill those that have not ended after `timeout` seconds."""
        for pipe in self._pipes:
            try:
                pipe.send(CLOSE)
            except OSError:
                continue
        self._end(timeout)

    def _end(self, grace_s: float) -> None:
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        for process in self._processes:
            process.join(grace_s)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()

    # Workers

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError(f"cannot {what}: the environments are closed")

    def _check_idle(self, what: str) -> None:
        self._check_open(what)
        if self._is_stepping:
            raise gymnasium.error.AlreadyPendingCallError(f"cannot {what}: call step_wait first", "step")

    def _ask(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send a message to each worker, and wait for the answers."""
        with self._ended_on_error():
            for worker, message in enumerate(messages):
                try:
                    self._pipes[worker].send(message)
                except OSError:
                    self._fail(worker, "")
            return self._answers()

    def _answers(self) -> list[Any]:
        """Return the answer of each worker, in their order; empty if it had no infos."""
        answers = []
        for worker, pipe in enumerate(self._pipes):
            try:
                answer = pipe.receive()
            except (EOFError, OSError):
                self._fail(worker, "")
            if answer is None:
                answers.append(())
            elif answer[0]:
                answers.append(answer[1])
            else:
                self._fail(worker, answer[1])
        return answers

    def _infos(self, answers: Sequence[Infos]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for answer in answers:
            for row, info in answer:
                infos = self._add_info(infos, info, row)
        return infos

    @contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.closed = True
            self._end(0.0)
            raise

    def _fail(self, worker: int, trace: str) -> NoReturn:
        said, rows = f"raised:\n{trace}", self._rows[worker]
        if self._processes:
            self._processes[worker].join(_CLOSE_S)
            said = said if trace else f"died (exit code {self._processes[worker].exitcode})"
        raise WorkerError(f"the worker of environments {rows.start} to {rows.stop - 1} {said}")


def _check_options(num_envs: int, workers: int, autoreset: AutoresetMode) -> None:
    """Check the numbers and the mode. Raises SettingError for impossible ones."""
    if num_envs < 1 or not 0 <= workers <= num_envs:
        raise SettingError(
            f"{num_envs} environments in {workers} workers are impossible; give at least 1 environment, and at most as many workers"
        )
    if autoreset == AutoresetMode.DISABLED:
        raise SettingError("autoreset is DISABLED; give NEXT_STEP or SAME_STEP")


def _let_go(envs: weakref.ref[ProcessVectorEnv]) -> None:
    if (there := envs()) is not None:
        there.close(timeout=_EXIT_S)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
