"""A training script as users run it, of which an agent requests a save and a pause."""

from __future__ import annotations

import socket
import time

from nodeagent.wire import frames
from nodeagent.wire.frames import Checkpoint, Frame, Saved, Steps
from tests.unit.headway_job.agent import MODEL, SENT, SOCKETS, Agent, Connection, Program

_PACKET = frames.MAX_FRAME_BYTES + 1

TRAIN = f"""
{MODEL}
import time, headway_job
from headway_job.hook import process
run = headway_job.checkpoint("checkpoints", model=model, optimizer=optimizer)
for number in run.steps(100_000):
    step()
    if process.save_requests().current is None and run.saved_step:
        break
run.close()
print(run.saved_step, number + 1)
"""


def asking(connection: Connection, peer: socket.socket) -> None:
    """Asks once it trains; has it go on a moment after it has saved."""

    def read() -> Frame | None:
        packet = peer.recv(_PACKET)
        if packet:
            connection.frames.append(frames.parse(packet))
        return connection.frames[-1] if packet else None

    peer.send(frames.welcome(0, 1.0, 0))
    sent = 0
    while (frame := read()) is not None:
        if isinstance(frame, Steps) and not sent:
            peer.send(frames.save_request(1, "p1.1", 30.0))
            sent = 1
        elif isinstance(frame, Saved) and sent == 1:
            time.sleep(0.3)
            peer.send(frames.go_on_request(2, "p1.1"))
            sent = 2
    connection.over = True


def test_a_script_saves_pauses_and_continues(agent: Agent, forked: Program) -> None:
    agent.manner = asking
    ended = forked.run(TRAIN)
    agent.close()
    assert ended.returncode == 0, ended.stderr
    saved_step, made = map(int, ended.stdout.split())

    [connection] = agent.connections
    [saved] = connection.of(Saved)
    assert isinstance(saved, Saved)
    assert (saved.id, saved.complete, saved.step) == ("p1.1", True, saved_step)
    assert made == saved_step + 1  # no step was made between the save and go_on
    assert 0 < connection.hello.loaded_ns < connection.steps.first_ns
    reported = [frame for frame in connection.of(Checkpoint) if isinstance(frame, Checkpoint)]
    assert (reported[0].rank, reported[0].world_size, reported[0].start, reported[0].saved, reported[0].open) == (
        0,
        1,
        0,
        -1,
        True,
    )
    assert [frame.saved for frame in reported if frame.saved >= 0][-1] == saved_step
    assert any(frame.saving for frame in reported)
    assert not reported[-1].open


def test_a_script_without_a_checkpoint_says_so(agent: Agent, forked: Program) -> None:
    agent.manner = asking
    until_answered = "wait_until(lambda: step() or time.sleep(0.05) or 'saved' in sent)\n"
    ended = forked.run(f"{SENT}{MODEL}{SOCKETS}step()\nconnected()\n{until_answered}")
    agent.close()
    assert (ended.returncode, ended.stderr) == (0, "")
    [connection] = agent.connections
    [saved] = connection.of(Saved)
    assert isinstance(saved, Saved)
    assert (saved.complete, saved.step) == (False, -1)
    assert "headway_job.checkpoint was not called" in saved.problem
    assert connection.of(Checkpoint) == []
