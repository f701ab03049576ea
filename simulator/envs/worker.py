"""A process that steps some environments of a vectorized one.

A signal from its owner means a step of all its environments; other commands are messages. It answers with a signal if all went
well and there are no infos, else with a message: (True, infos) or (False, error). Arrays of fixed shape, such as observations,
go through shared memory, so most steps send two bytes. It ends at the command CLOSE, or when its owner has ended.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from simulator.envs.shared_memory import ELAPSED, Blocks, Views
from simulator.envs.worker_pipe import WorkerPipe
from simulator.errors import SimulatorError

Env = gymnasium.Env[Any, Any]
Infos = list[tuple[int, dict[str, Any]]]
"""Rows and the infos of their environments; empty infos are left out."""
RESET, CALL, CALL_EACH, CLOSE = "reset", "call", "call_each", "close"
_NAN = float("nan")


class WorkerEnvs:
    """Environments and their rows of the shared arrays."""

    def __init__(self, envs: Sequence[Env], first: int, views: Views, autoreset: AutoresetMode) -> None:
        """The environments write the rows from `first` on."""
        self._envs = envs
        self._first = first
        self._views = views
        self._actions = views.actions[first : first + len(envs)]
        self._same_step = autoreset == AutoresetMode.SAME_STEP
        self._ended = [False] * len(envs)
        self._masks = [env.get_wrapper_attr("action_masks") for env in envs] if views.masks is not None else []

    def reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> Infos:
        """Begin an episode in every environment."""
        infos: Infos = []
        for place, env in enumerate(self._envs):
            observation, info = env.reset(seed=seeds[place], options=options)
            self._put(place, observation, 0.0, False, False)
            if info:
                infos.append((self._first + place, info))
        return infos

    def step(self) -> Infos:
        """Apply the action of every environment; an environment whose episode ended is reset, in this step or in the next."""
        infos: Infos = []
        for place, (env, action) in enumerate(zip(self._envs, self._actions, strict=True)):
            row = self._first + place
            if self._ended[place]:
                observation, info = env.reset()
                self._put(place, observation, 0.0, False, False)
                self._views.elapsed[row] = _NAN
            else:
                observation, reward, terminated, truncated, info = env.step(action)
                self._views.elapsed[row] = info.pop(ELAPSED, _NAN)
                if self._same_step and (terminated or truncated):
                    infos.append((row, {"final_obs": observation, "final_info": info}))
                    observation, info = env.reset()
                self._put(place, observation, float(reward), terminated, truncated)
            # A flag that is not set reads as False anyway, and most steps need no message then.
            if info := {name: value for name, value in info.items() if value is not False}:
                infos.append((row, info))
        return infos

    def call(self, name: str, arguments: tuple[Any, ...]) -> list[Any]:
        """Return an attribute of each environment, or the result of calling it."""
        found = [env.get_wrapper_attr(name) for env in self._envs]
        return [each(*arguments) if callable(each) else each for each in found]

    def call_each(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of each environment with its own arguments; return the results."""
        return [env.get_wrapper_attr(name)(*mine) for env, mine in zip(self._envs, arguments, strict=True)]

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs:
            env.close()

    def _put(self, place: int, observation: Any, reward: float, terminated: bool, truncated: bool) -> None:
        row, views = self._first + place, self._views
        views.put(row, observation)
        views.rewards[row] = reward
        views.terminated[row] = terminated
        views.truncated[row] = truncated
        if views.masks is not None:
            views.masks[row] = self._masks[place]()
        self._ended[place] = not self._same_step and (terminated or truncated)


class InProcessWorker:
    """A worker in the process of its owner, with the methods of a WorkerPipe.

    Invariant: every signal or message is answered by the next `receive`.
    """

    def __init__(self, make: Callable[[], Env], count: int, views: Views, autoreset: AutoresetMode) -> None:
        """Make the environments; they write the rows from 0 on."""
        self._rows = WorkerEnvs([make() for _ in range(count)], 0, views, autoreset)
        self._answer: tuple[bool, Any] | None = None

    def signal(self) -> None:
        """Step all environments."""
        self._do(self._rows.step)

    def send(self, message: Any) -> None:
        """Carry out the command of a message."""
        if message == CLOSE:
            self._rows.close()
        else:
            self._do(partial(getattr(self._rows, message[0]), *message[1:]))

    def receive(self) -> Any:
        """Return the answer to the last command; None if all went well and there are no infos."""
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Do nothing: there is no pipe."""

    def _do(self, command: Callable[[], Any]) -> None:
        try:
            answer = command()
        except Exception as error:  # noqa: BLE001 - as in a worker process
            self._answer = (False, _text(error))
        else:
            self._answer = (True, answer) if answer else None


def work(
    pipe: Connection, make: Callable[[], Env], first: int, count: int, blocks: Blocks, autoreset: AutoresetMode
) -> None:
    """Run the worker process: make the environments, then carry out the commands from the pipe."""
    # The owner handles these signals and closes the pipe; its end closes with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe_end = WorkerPipe(pipe)
    try:
        rows = WorkerEnvs([make() for _ in range(count)], first, blocks.views(), autoreset)
        pipe_end.signal()
        while (command := pipe_end.receive()) != CLOSE:
            answer = rows.step() if command is None else getattr(rows, command[0])(*command[1:])
            if answer:
                pipe_end.send((True, answer))
            else:
                pipe_end.signal()
        rows.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # noqa: BLE001 - any exception of an environment is raised again by the owner
        pipe_end.send((False, _text(error)))


def _text(error: Exception) -> str:
    """Return the message of an error that the simulator raises on purpose; of others, which are bugs, the traceback."""
    return str(error) if isinstance(error, SimulatorError) else traceback.format_exc()
