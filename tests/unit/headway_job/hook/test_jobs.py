"""Ordinary, unchanged programs report to the agent, and their output and results stay the same."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import torch

from nodeagent.wire.frames import Bye, Hello, Model, Steps
from tests.unit.headway_job.agent import CONNECTED, MODEL, SOCKETS, Agent, Program

_ALONE = MODEL + "import time\nfor _ in range(30):\n    step()\n    time.sleep(0.02)\nprint('trained')\n"
_LOOP = _ALONE + CONNECTED


def test_a_plain_loop(agent: Agent, program: Program) -> None:
    program.environment.update(SLURM_JOB_ID="4711", SLURM_RESTART_COUNT="2")
    done = program.run(_LOOP)
    agent.close()

    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    (connection,) = agent.connections
    assert isinstance(connection.frames[0], Hello)
    assert isinstance(connection.frames[-1], Bye)
    assert [frame.seq for frame in connection.frames] == list(range(len(connection.frames)))
    hello = connection.hello
    assert (hello.rank, hello.world_size, hello.local_rank) == (-1, -1, -1)
    assert (hello.script, hello.job_id, hello.restart, hello.device) == ("train.py", "4711", 2, "cpu")
    assert hello.torch == torch.__version__
    model = connection.model
    assert (model.num_params, model.num_tensors, model.param_bytes, model.optimizers) == (27, 2, 108, 1)
    assert model.signature == hashlib.sha256(b"3 torch.float32\n3x8 torch.float32\n").hexdigest()
    assert (model.groups, model.batch_size) == ((), -1)
    rows = [frame for frame in connection.of(Steps) if isinstance(frame, Steps)]
    assert rows[-1].steps == 30
    assert 1 + sum(row.window_steps for row in rows) == 30
    assert rows[-1].last_ns - rows[-1].first_ns == round(sum(row.window_s for row in rows) * 1e9)


def test_a_program_that_never_trains_takes_no_connection(agent: Agent, program: Program) -> None:
    """A launcher, a script that only infers, a worker of somebody's DataLoader: none of them steps."""
    idle = "import time, torch\ntime.sleep(1.5)\ntorch.zeros(3).add_(1)\nprint('done')\n"
    done = program.run(idle)
    agent.close()
    assert (done.returncode, done.stdout, done.stderr, agent.connections) == (0, "done\n", "", [])


def test_a_program_that_trains_late_connects_at_once(agent: Agent, forked: Program) -> None:
    never = (
        "from headway_job.hook import agent_client\nagent_client._MAX_RETRY_S = 600.0\n"  # it does not look by itself
    )
    begin = never + MODEL + "import time\ntime.sleep(1.5)\nstep()\n" + CONNECTED
    forked.run(begin + "for _ in range(9): step()\n")
    agent.close()
    (connection,) = agent.connections
    assert connection.steps.steps == 10


def test_the_batch_size_is_that_of_the_loader(agent: Agent, forked: Program) -> None:
    forked.run(
        MODEL
        + """
import time
from torch.utils.data import DataLoader
for batch in DataLoader(torch.ones(96, 8), batch_size=32):
    for _ in range(10):
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
        time.sleep(0.02)
"""
        + CONNECTED
    )
    agent.close()
    assert agent.connections[0].model.batch_size == 32


def test_frames_of_steps_come_once_a_second(agent: Agent, forked: Program) -> None:
    done = forked.run(
        """
from headway_job.hook import agent_client, process
process._STOP_AT_EXIT_S = 60.0
sent_s = []
send_steps = agent_client.AgentClient._send_steps
def recorded(self, socket, now_s):
    send_steps(self, socket, now_s)
    sent_s.extend([now_s] if self._sent_s == now_s else [])
agent_client.AgentClient._send_steps = recorded
"""
        + MODEL
        + """
import time
end = time.monotonic() + 60
while len(sent_s) < 4 and time.monotonic() < end: step()
print(*sent_s)
"""
        + CONNECTED
    )
    agent.close()
    (connection,) = agent.connections
    sent_s = [float(word) for word in done.stdout.split()]
    assert len(sent_s) >= 4
    assert all(after - before >= 0.99 for before, after in pairwise(sent_s))
    assert len(connection.of(Steps)) - len(sent_s) in (0, 1)  # what was done since is sent at the end


def test_ranks_come_from_the_environment(agent: Agent, forked: Program) -> None:
    forked.environment.update(RANK="3", WORLD_SIZE="8", LOCAL_RANK="1", SLURM_PROCID="5", SLURM_STEP_NUM_TASKS="9")
    forked.run(_LOOP)
    agent.close()
    hello = agent.connections[0].hello
    assert (hello.rank, hello.world_size, hello.local_rank) == (3, 8, 1)


def test_ranks_come_from_sruns_variables(agent: Agent, forked: Program) -> None:
    forked.environment.update(SLURM_PROCID="5", SLURM_STEP_NUM_TASKS="9", SLURM_NTASKS="9", SLURM_LOCALID="0")
    forked.run(_LOOP)
    agent.close()
    hello = agent.connections[0].hello
    assert (hello.rank, hello.world_size, hello.local_rank) == (5, 9, 0)


def test_a_batch_script_is_not_as_many_as_its_tasks(agent: Agent, forked: Program) -> None:
    forked.environment.update(SLURM_PROCID="0", SLURM_NTASKS="16")
    forked.run(_LOOP)
    agent.close()
    assert agent.connections[0].hello.world_size == -1


def test_two_optimizers(agent: Agent, forked: Program) -> None:
    forked.run(
        MODEL
        + """
import time
critic = torch.nn.Linear(3, 1)
other = torch.optim.Adam(critic.parameters())
for _ in range(12):
    for _ in range(5):
        critic(torch.ones(1, 3)).sum().backward()
        other.step()
    step()
    time.sleep(0.03)
"""
        + CONNECTED
    )
    agent.close()
    connection = agent.connections[0]
    assert connection.steps.steps == 60
    assert (connection.model.optimizers, connection.model.num_params) == (2, 27 + 4)


def test_gradient_accumulation(agent: Agent, forked: Program) -> None:
    forked.run(
        MODEL
        + """
import time
for number in range(48):
    model(torch.ones(4, 8)).sum().backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    time.sleep(0.01)
"""
        + CONNECTED
    )
    agent.close()
    assert agent.connections[0].steps.steps == 12


def test_steps_that_a_grad_scaler_skips_are_none(agent: Agent, forked: Program) -> None:
    forked.run(
        MODEL
        + """
import time
scaler = torch.amp.GradScaler("cpu")
for number in range(20):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).sum()
    if number % 5 == 0:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    time.sleep(0.02)
"""
        + CONNECTED
    )
    agent.close()
    assert agent.connections[0].steps.steps == 16


def test_the_program_does_not_see_the_thread(agent: Agent, forked: Program) -> None:
    done = forked.run(
        """
        import threading, time, torch
        time.sleep(0.5)
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join()
        print(threading.active_count())
        """
    )
    assert done.stdout == "1\n"


def test_signals_reach_the_thread_that_awaits_them(agent: Agent, forked: Program) -> None:
    done = forked.run(
        """
        import os, signal, threading, time, torch
        time.sleep(0.5)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        print(signal.sigwait({signal.SIGUSR1}).name)
        """
    )
    assert (done.returncode, done.stdout) == (0, "SIGUSR1\n")


def test_a_model_created_later_is_reported_again(agent: Agent, forked: Program) -> None:
    forked.run(
        MODEL
        + SOCKETS
        + """
step()
connected()
step()
wait_until(lambda: client()._model_key is not None)
step()
late = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1000))], lr=0.1)
for _ in range(20):
    step()
    late.step()
"""
    )
    agent.close()
    models = [frame for frame in agent.connections[0].of(Model) if isinstance(frame, Model)]
    assert [(model.optimizers, model.num_params) for model in models] == [(1, 27), (2, 1027)]


def test_switched_off_by_torch_s_own_switch(agent: Agent, program: Program) -> None:
    program.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    assert program.run(_ALONE).stdout == "trained\n"
    assert agent.connections == []


def test_nothing_is_imported_that_torch_has_not(agent: Agent, program: Program) -> None:
    text = (
        MODEL
        + """
import sys, time
step()
hook = sys.modules.get("headway_job.hook.process")
end = time.monotonic() + 60
while hook and not (hook._hook.client and hook._hook.client._hello) and time.monotonic() < end: time.sleep(0.01)
step()
print(sorted(name for name in sys.modules if not name.startswith("headway_job")))
"""
    )
    without = Program(Path(program.environment["HEADWAY_JOB_SOCKET"]).parent, agent)
    without.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    assert program.run(text).stdout == without.run(text).stdout
    agent.close()
    assert len(agent.connections) == 1
