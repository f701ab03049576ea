"""`headway notify`: a program of the user runs for each event of the user's jobs."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cli.client import UNREACHABLE, CallError
from controller.cli.commands.notify import Ends, followed
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.cli.test_app import DEADLINE_S, cluster, headway, start
from tests.unit.policies.processes import eventually

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def program(folder: Path, *more: str) -> list[str]:
    """Return a command that writes what it gets into the file `got`, and then does `more`."""
    script = folder / "told.py"
    lines = [f"open({str(folder / 'got')!r}, 'a').write(sys.stdin.read() + chr(10))", *more]
    script.write_text("import sys, time\n" + "\n".join(lines) + "\n")
    return [sys.executable, str(script)]


def got(folder: Path) -> list[dict[str, Any]]:
    path = folder / "got"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def told(folder: Path, times: int) -> list[dict[str, Any]]:
    async def there() -> bool:
        return len(got(folder)) >= times

    await eventually(there)
    return got(folder)


async def test_a_users_own_jobs_are_notified_as_that_user_until_ctrl_c(folder: Path) -> None:
    async with cluster(folder) as (world, where):
        mine = world.sbatch(gpus_per_node=1, user=ME).job_id
        await world.turn()
        process = await start("notify", *where, "--", *program(folder))
        # events are sent until the first one arrives: the program may not have connected yet
        for _ in range(1200):
            world.events.add("started", mine, "n1:8 first")
            await asyncio.sleep(0.05)
            if got(folder):
                break
        world.events.add("ended", "2", "of another user")
        world.events.add("placed", mine, "not asked for")
        world.events.add("ended", mine, "COMPLETED")

        async def ended() -> bool:
            return any(each["kind"] == "ended" for each in got(folder))

        await eventually(ended)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert (process.returncode, out, err) == (0, b"", b"")
    found = got(folder)
    assert {(each["job_id"], each["user"]) for each in found} == {(mine, ME)}
    assert {each["kind"] for each in found} == {"started", "ended"}
    assert found[-1]["text"] == "COMPLETED"


async def test_with_a_job_it_ends_with_the_job_and_says_what_failed(folder: Path) -> None:
    async with cluster(folder) as (world, where):
        mine = world.sbatch(gpus_per_node=1, user=ME).job_id
        await world.turn()
        failing = program(folder, "sys.exit(3)")
        process = await start("notify", "--event", "ended", "--job", mine, *where, "--", *failing)
        for _ in range(1200):
            world.events.add("ended", mine, "FAILED")
            await asyncio.sleep(0.05)
            if got(folder):
                break
        _, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        unknown = await headway("notify", "--job", "99", *where, "--", *failing)
        no_program = await headway("notify", *where, "--", str(folder / "nothing"))
    assert process.returncode == 0
    assert f"headway: ended of job {mine}: {sys.executable} ended with status 3" in err.decode()
    assert (unknown.code, no_program.code) == (1, 2)
    assert "no such program" in no_program.err


class Calls:
    """A controller that is called again and again: each call has a list of events, or fails before any."""

    def __init__(self, *calls: list[pb.Event] | None) -> None:
        self._calls = list(calls)
        self.since: list[float] = []

    def connect(self) -> Any:
        if self._calls[0] is None:
            self._calls.pop(0)
            raise CallError("no controller answers", UNREACHABLE)
        return self

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def policy(self) -> None:
        pass

    def events(self, request: pb.WatchEventsRequest) -> Iterator[pb.Event]:
        self.since.append(request.since_s)
        yield from self._calls.pop(0) or []
        raise CallError("it has ended", UNREACHABLE)


def test_events_are_followed_across_restarts_each_once() -> None:
    first, second, third = (pb.Event(time_s=10.0 + at, kind="ended", job_id=str(at), text="x") for at in (0, 0.5, 0.5))
    calls = Calls([], [first, second], None, None, [second, third], [])
    pauses: list[float] = []
    found = followed(calls.connect, "", 5.0, pauses.append)

    assert [next(found).job_id for _ in range(2)] == ["0", "0.5"]
    with pytest.raises(IndexError):
        next(found)  # the event that was there before is not repeated; third is equal to it
    assert calls.since == [5.0, 5.0, 10.5, 10.5]
    assert pauses[:4] == [1.0, 1.0, 2.0, 4.0]


def test_without_a_controller_it_ends_at_once() -> None:
    with pytest.raises(CallError):
        next(followed(Calls(None).connect, "", 5.0, lambda _seconds: None))


class Queues:
    """A controller that is asked for its queue again and again: each time for the next one, or it is away (None)."""

    def __init__(self, *queues: list[str] | None) -> None:
        self._queues = list(queues)

    def connect(self) -> Any:
        return self

    def __enter__(self) -> Queues:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def queue(self) -> pb.Queue:
        found = self._queues.pop(0)
        if found is None:
            raise CallError("no controller answers", UNREACHABLE)
        return pb.Queue(entries=[pb.QueueEntry(job_id=job_id) for job_id in found])


def test_an_array_ends_with_the_last_of_its_tasks() -> None:
    def event(kind: str, job_id: str) -> pb.Event:
        return pb.Event(kind=kind, job_id=job_id)

    # given queues of the cycle before each event, another job, and a controller that is away for a moment
    pauses: list[float] = []
    ends = Ends(
        Queues(["7_1", "7_2", "7_3", "71"], ["7_2", "7_3"], None, None, ["7_2", "71"]).connect, "7", pauses.append
    )
    # when one task after the other ends, one of which runs a second time, then only the last end is that of the array
    assert not ends.with_event(event("ended", "7_1"))
    assert not ends.with_event(event("ended", "7_3"))
    assert not ends.with_event(event("started", "7_3"))
    ends_again = ends.with_event(event("ended", "7_3"))
    assert (ends_again, pauses) == (False, [1.0, 2.0])
    ends_at_last = Ends(Queues([], ["7_2"]).connect, "7", pauses.append)
    assert ends_at_last.with_event(event("ended", "7_2"))
    assert not Ends(Queues(["7_2"]).connect, "7", pauses.append).with_event(event("placed", "7_2"))


def test_a_single_job_ends_without_a_look_at_the_queue() -> None:
    assert Ends(Queues().connect, "7_2").with_event(pb.Event(kind="ended", job_id="7_2"))
