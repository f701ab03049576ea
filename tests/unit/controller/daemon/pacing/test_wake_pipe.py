"""The pipe through which Slurm's hooks wake the controller."""

import asyncio
import os

import pytest

from controller.base.errors import ConfigurationError
from controller.daemon.pacing.wake_pipe import WakePipe
from tests.unit.open_files import open_files


@pytest.fixture
async def pipe(tmp_path):
    opened = WakePipe(tmp_path / "wake")
    yield opened
    opened.close()


def write(path, text):
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, text.encode())
    os.close(descriptor)


async def test_a_line_wakes_and_is_counted(pipe, tmp_path):
    write(tmp_path / "wake", "submit\nsubmit\nend 12\nuser-hold 7_1\nuser-release 8\n")
    await pipe.wait(60.0)
    woken = pipe.take()
    assert (woken.submitted, woken.ended, woken.user_holds) == (3, 1, 1)
    assert not pipe.take().any


async def test_a_line_that_comes_in_two_pieces_is_one_line(pipe, tmp_path):
    write(tmp_path / "wake", "user-ho")
    await pipe.wait(60.0)
    pipe.take()
    write(tmp_path / "wake", "ld 5\n")
    await pipe.wait(60.0)
    assert pipe.take().user_holds == 1


async def test_rubbish_only_wakes(pipe, tmp_path):
    write(tmp_path / "wake", "\x00\xff" * 5000 + "\nsubmit\n")
    await pipe.wait(60.0)
    assert pipe.take().submitted == 1


async def test_hooks_have_a_pipe_of_their_own_beside_that_of_job_submit_lua(pipe, tmp_path):
    room = pipe.room_bytes
    write(tmp_path / "wake-hooks", "start 3\nend 4\nsub")
    write(tmp_path / "wake", "submit\n")
    while not (pipe.so_far.submitted and pipe.so_far.started):
        await pipe.wait(60.0, lambda woken: bool(woken.submitted and woken.started))
    woken = pipe.take()
    assert (woken.submitted, woken.started, woken.ended) == (1, 1, 1)
    write(tmp_path / "wake-hooks", "x" * 30_000)
    assert pipe.room_bytes == room


async def test_waiting_ends_by_itself(pipe):
    await pipe.wait(0.01)
    assert not pipe.take().any


async def test_writers_do_not_block_while_the_pipe_is_not_read(pipe, tmp_path):
    room = pipe.room_bytes
    write(tmp_path / "wake", "submit\n" * 100)
    assert pipe.room_bytes <= room - 700 or pipe.room_bytes == room  # read already, or still in the pipe


@pytest.mark.parametrize("name", ["wake", "wake-hooks"])
async def test_a_path_that_is_no_pipe_is_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    before = open_files()
    with pytest.raises(ConfigurationError, match="this is not a named pipe; remove it"):
        WakePipe(tmp_path / "wake")
    assert open_files() <= before


async def test_the_pipe_is_for_its_owner_until_a_group_is_let_in(pipe, tmp_path):
    assert (tmp_path / "wake").stat().st_mode & 0o777 == 0o600
    pipe.grant(os.getgid())
    assert (tmp_path / "wake").stat().st_mode & 0o777 == 0o660
    assert (tmp_path / "wake-hooks").stat().st_mode & 0o777 == 0o660


async def test_a_wait_for_certain_lines_is_not_ended_by_others(pipe, tmp_path):
    write(tmp_path / "wake", "start 3\n")
    await pipe.wait(60.0)
    sleeper = asyncio.create_task(pipe.wait(60.0, lambda woken: woken.submitted > 0))
    write(tmp_path / "wake", "end 3\n")
    await asyncio.sleep(0.05)
    assert not sleeper.done()
    write(tmp_path / "wake", "submit\n")
    await sleeper
    woken = pipe.take()
    assert (woken.submitted, woken.started, woken.ended) == (1, 1, 1)


async def test_lines_that_do_not_end_a_wait_are_still_counted(pipe, tmp_path):
    write(tmp_path / "wake", "end 3\n")
    await pipe.wait(0.05, lambda woken: woken.submitted > 0)
    await asyncio.wait_for(pipe.wait(60.0), 30.0)
    assert pipe.take().ended == 1


async def test_a_nudge_ends_every_wait(pipe):
    sleeper = asyncio.create_task(pipe.wait(60.0, lambda woken: woken.submitted > 0))
    await asyncio.sleep(0)
    pipe.nudge()
    await asyncio.wait_for(sleeper, 30.0)
    await asyncio.wait_for(pipe.wait(60.0), 30.0)
