"""Environments in worker processes: they act as single environments, and a worker that dies is an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from simulator.envs.vector import ProcessVectorEnv
from simulator.errors import SettingError, WorkerError
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.traces.generators.contention_rl import ContentionRL
from simulator.traces.trace import NS_PER_S, Trace

MAKE = partial(ContentionEnv, traces=ContentionRL(jobs=6), slowdown=("max-min",))


def action_of(mask: np.ndarray[Any, Any], turn: int) -> int:
    """Some possible action; now and then an impossible one."""
    possible = np.flatnonzero(mask)
    return int(possible[turn * 7 % len(possible)]) if turn % 5 else turn % len(mask)


@pytest.mark.parametrize("autoreset", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("workers", [0, 2])
def test_they_do_what_single_environments_do(workers: int, autoreset: AutoresetMode) -> None:
    singles = [MAKE() for _ in range(3)]
    envs = ProcessVectorEnv(MAKE, 3, workers=workers, autoreset=autoreset)
    try:
        assert envs.metadata["autoreset_mode"] == autoreset
        seen, _ = envs.reset(seed=20)
        assert seen in envs.observation_space
        expected = [env.reset(seed=20 + row)[0] for row, env in enumerate(singles)]
        assert np.array_equal(seen, expected)
        ended = [False] * 3
        episodes = 0
        for turn in range(150):
            masks = envs.action_masks()
            assert np.array_equal(masks, [env.action_masks() for env in singles])
            actions = [action_of(mask, turn + row) for row, mask in enumerate(masks)]
            seen, rewards, terminated, truncated, infos = envs.step(np.array(actions))
            for row, env in enumerate(singles):
                if ended[row]:
                    step: tuple[Any, ...] = (env.reset()[0], 0.0, False, False, {})
                else:
                    step = env.step(np.int64(actions[row]))
                over = step[2] or step[3]
                assert infos["_elapsed"][row] == ("elapsed" in step[4])
                assert infos["elapsed"][row] == step[4].get("elapsed", 0.0)
                assert (rewards[row], terminated[row], truncated[row]) == step[1:4]
                ended[row] = over and autoreset == AutoresetMode.NEXT_STEP
                if over:
                    episodes += 1
                    outcome = infos["outcome"] if ended[row] else infos["final_info"]["outcome"]
                    assert outcome["avg_jct_s"][row] == step[4]["outcome"]["avg_jct_s"]
                if over and autoreset == AutoresetMode.SAME_STEP:
                    assert np.array_equal(infos["final_obs"][row], step[0])
                    assert infos["_final_obs"].tolist() == (terminated | truncated).tolist()
                    step = env.reset()
                assert np.array_equal(seen[row], step[0])
        assert episodes > 3
        assert envs.get_attr("steps") == tuple(env.steps for env in singles)
        with pytest.raises(gymnasium.error.NoAsyncCallError):
            envs.step_wait()
        envs.step_async(np.zeros(3, dtype=np.int64))
        with pytest.raises(gymnasium.error.AlreadyPendingCallError):
            envs.reset()
        envs.step_wait()
    finally:
        envs.close()
    assert [process.exitcode for process in envs.processes] == [0] * workers
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.step(np.zeros(3, dtype=np.int64))
    envs.close()


def test_a_killed_worker_is_an_error_and_ends_the_others() -> None:
    envs = ProcessVectorEnv(MAKE, 4, workers=2)
    envs.reset(seed=1)
    victim = envs.processes[1].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"environments 2 to 3 died \(exit code -9\)"):
        for _ in range(3):
            envs.step(np.zeros(4, dtype=np.int64))
    assert not any(process.is_alive() for process in envs.processes)
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()
    envs.close()


class Faulty(ContentionEnv):
    """Raises at its third step."""

    no_message = staticmethod(Path(os.devnull).open)
    """Gives a file, which cannot be pickled."""

    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise ZeroDivisionError("the third step")
        return super().step(action)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_raises_is_an_error_with_its_traceback(workers: int) -> None:
    envs = ProcessVectorEnv(Faulty, 2, workers=workers)
    envs.reset(seed=1)
    envs.step([0, 0])
    envs.step([0, 0])
    with pytest.raises(WorkerError, match="ZeroDivisionError: the third step"):
        envs.step([0, 0])
    assert not any(process.is_alive() for process in envs.processes)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_that_the_user_can_mend_is_its_message_alone(workers: int) -> None:
    trace = Trace.of("wide", ["1"], np.zeros(1, dtype=np.int64), [24], [NS_PER_S])
    envs = ProcessVectorEnv(partial(ContentionEnv, traces=(trace,), cluster="3x8"), 2, workers=workers)
    with pytest.raises(WorkerError, match="a job of 24 GPUs cannot be divided evenly") as caught:
        envs.reset(seed=1)
    assert "Traceback" not in str(caught.value)


def test_an_environment_that_cannot_be_pickled_is_an_error() -> None:
    envs = ProcessVectorEnv(Faulty, 2, workers=2)
    assert envs.get_attr("steps") == (0, 0)
    with pytest.raises(WorkerError, match="TypeError: cannot pickle"):
        envs.call("no_message")
    assert not any(process.is_alive() for process in envs.processes)


class Endless(ContentionEnv):
    """No step comes back."""

    def step(self, action: Any) -> Any:
        while True:
            time.sleep(1.0)


def test_a_worker_that_dies_during_a_step_is_an_error() -> None:
    envs = ProcessVectorEnv(Endless, 4, workers=2)
    envs.reset(seed=1)
    envs.step_async([0, 0, 0, 0])
    victim = envs.processes[0].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"environments 0 to 1 died \(exit code -9\)"):
        envs.step_wait()
    assert not any(process.is_alive() for process in envs.processes)
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.step_wait()


BEGIN = """
import os, signal, sys, threading, time
import gymnasium
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.envs.vector import ProcessVectorEnv
from tests.unit.simulator.envs.test_vector import Endless
if __name__ == "__main__":
    envs = ProcessVectorEnv(Endless, 2, workers=2)
    envs.reset(seed=1)
    print(*[process.pid for process in envs.processes], flush=True)
"""
KILLED = """
    os.kill(os.getpid(), signal.SIGKILL)
"""
# As a terminal does it: all processes get the signal, and only the owner, which waits by then, reacts.
INTERRUPTED = """
    main = threading.main_thread().ident
    def stack(frame):
        while frame:
            yield frame.f_code.co_name
            frame = frame.f_back
    def interrupt():
        while not {"step_wait", "receive"} <= set(stack(sys._current_frames()[main])): time.sleep(0.01)
        os.killpg(0, signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        envs.step([0, 0])
    except KeyboardInterrupt:
        print("interrupted", [process.exitcode for process in envs.processes])
    try:
        envs.reset()
    except gymnasium.error.ClosedEnvironmentError as error:
        print(error)
"""
FORGOTTEN = """
    envs.step_async([0, 0])
"""
# As `timeout` and Slurm do it: all processes get the signal, and the owner, which reacts later, continues for a while. As
# signals do not queue up, and Python's handler runs when it comes to it, the next one is sent when this one was heard.
TERMINATED = """
    heard = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
    def terminate():
        before = len(heard)
        os.killpg(0, signal.SIGTERM)
        while len(heard) == before: time.sleep(0.01)
    terminate()
    again = ProcessVectorEnv(ContentionEnv, 2, workers=2)
    again.reset(seed=1)
    terminate()
    print(again.step([0, 0])[2].tolist(), [process.is_alive() for process in envs.processes])
"""


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (KILLED, -signal.SIGKILL, ""),
        (INTERRUPTED, 0, "interrupted [-9, -9]\ncannot reset: the environments are closed\n"),
        (FORGOTTEN, 0, ""),
        (TERMINATED, 0, "[False, False] [True, True]\n"),
    ],
    ids=["killed", "interrupted", "forgotten", "terminated"],
)
def test_workers_end_with_their_owner(tmp_path: Path, end: str, code: int, says: str) -> None:
    script = tmp_path / "owner.py"
    script.write_text(BEGIN + end)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    owner = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert owner.stdout is not None
    assert owner.stderr is not None
    workers = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(workers) == 2
    # `communicate` would lose what the owner has printed since, if that is in the buffer already.
    with owner:
        printed, errors = owner.stdout.read(), owner.stderr.read()
    assert (owner.returncode, printed) == (code, says), errors
    assert errors == ""
    for _ in range(400):
        if not any(alive(pid) for pid in workers):
            return
        time.sleep(0.05)
    pytest.fail("workers outlive their owner")


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_envs": 0}, "0 environments"),
        ({"num_envs": 2, "workers": 3}, "2 environments in 3 workers"),
        ({"num_envs": 2, "autoreset": AutoresetMode.DISABLED}, "give NEXT_STEP or SAME_STEP"),
    ],
)
def test_impossible_options_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        ProcessVectorEnv(MAKE, **arguments)
