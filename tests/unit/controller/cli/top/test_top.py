"""`headway top` under the hands of a user: keys, slow and lost controllers; and as a program on a terminal."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
import threading

import pytest
from textual.widgets import DataTable, Input, Static

from controller.cli.client import UNREACHABLE, CallError
from controller.cli.top.app import Top, Why
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.cli.test_app import PROGRAM, cluster, folder, headway
from tests.unit.controller.cli.top.test_screen import JOBS

__all__ = ["folder"]
DEADLINE_S = 60.0


class FakeClient:
    """Answers as the controller does, or fails, or does not answer until it may."""

    def __init__(self):
        self.jobs, self.problem, self.requests = list(JOBS), "", 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def status(self):
        self.requests += 1
        self.may_answer.wait(DEADLINE_S)
        if self.problem:
            raise CallError(self.problem, UNREACHABLE)
        return pb.Status(version="9.9", jobs_waiting=2, gpus_used=4, gpus_total=8)

    def queue(self):
        return pb.Queue(entries=self.jobs)

    def why(self, job_id):
        return pb.Explanation(job_id=job_id, state="waiting", sentence="7 GPUs are free", facts={"free_gpus": "7"})


class Screen:
    """The program with a fake controller, on a screen of 100 x 30."""

    def __init__(self, **changes):
        self.client = FakeClient()
        self.app = Top(self.client, "ann", **{"every_s": 0.05, "limit": 500, **changes})

    async def __aenter__(self):
        self._test = self.app.run_test(size=(100, 30))
        self.pilot = await self._test.__aenter__()
        return self

    async def __aexit__(self, *error):
        self.client.may_answer.set()
        await self._test.__aexit__(*error)

    @property
    def ids(self):
        table = self.app.screen_stack[0].query_one("#jobs", DataTable)
        return [str(key.value) for key in table.rows]

    def text(self, selector="#header"):
        shown = self.app.screen_stack[0].query_one(selector, Static)
        return "\n".join(line.text for line in shown.render_lines(shown.size.region))

    async def until(self, holds):
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                await self.pilot.pause(0.02)


@pytest.mark.asyncio
async def test_the_queue_is_shown_and_follows_the_controller():
    async with Screen() as screen:
        await screen.until(lambda: screen.ids == ["1", "2", "3"])
        await screen.until(lambda: "9.9" in screen.text() and "4 of 8 in use" in screen.text())
        screen.client.jobs = JOBS[1:]
        await screen.until(lambda: screen.ids == ["2", "3"])


@pytest.mark.asyncio
async def test_keys_sort_filter_and_search():
    async with Screen() as screen:
        await screen.until(lambda: screen.ids == ["1", "2", "3"])
        await screen.pilot.press("s")
        assert screen.ids == ["3", "2", "1"]
        await screen.pilot.press("m")
        assert screen.ids == ["3", "1"]
        await screen.pilot.press("m", "t")
        assert screen.ids == ["3", "2"]
        await screen.pilot.press("slash", "v", "i", "t", "enter")
        assert screen.ids == ["3"]
        assert "2 filtered out" in screen.text("#choice")
        # the search is over: letters are keys again
        assert not screen.app.query_one("#search", Input).has_focus
        await screen.pilot.press("t", "t", "t")
        assert screen.ids == ["3"]


@pytest.mark.asyncio
async def test_enter_explains_the_job_under_the_cursor_which_follows_its_job():
    async with Screen() as screen:
        await screen.until(lambda: screen.ids == ["1", "2", "3"])
        await screen.pilot.press("down")
        screen.client.jobs = JOBS[1:]
        await screen.until(lambda: screen.ids == ["2", "3"])
        await screen.pilot.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, Why))
        shown = [str(part.render()) for part in screen.app.screen.query(Static)]
        assert shown[0] == "Job 2 (waiting): 7 GPUs are free"
        await screen.pilot.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, Why))


@pytest.mark.asyncio
async def test_a_lost_controller_leaves_the_last_answer_marked_as_stale_until_it_is_back():
    async with Screen() as screen:
        await screen.until(lambda: screen.ids == ["1", "2", "3"])
        screen.client.problem = "no controller answers"
        await screen.until(lambda: "STALE" in screen.text() and "no controller answers" in screen.text())
        assert screen.ids == ["1", "2", "3"]
        screen.client.problem = ""
        await screen.until(lambda: "STALE" not in screen.text())


@pytest.mark.asyncio
async def test_a_slow_controller_gets_one_request_at_a_time_and_does_not_stop_the_keys():
    async with Screen() as screen:
        await screen.until(lambda: screen.ids == ["1", "2", "3"])
        screen.client.may_answer.clear()
        before = screen.client.requests
        await screen.pilot.pause(0.5)
        await screen.pilot.press("s")
        assert screen.ids == ["3", "2", "1"]
        assert screen.client.requests <= before + 1


@pytest.mark.asyncio
async def test_no_more_jobs_than_the_limit_are_shown():
    async with Screen(limit=2) as screen:
        await screen.until(lambda: screen.ids == ["1", "2"])
        assert "2 of 3 jobs" in screen.text("#choice")


# --- as a program


@pytest.mark.asyncio
async def test_without_a_terminal_it_names_the_commands_for_programs():
    ran = await headway("top")
    assert (ran.code, ran.out) == (2, "")
    assert "top needs a terminal; `headway queue`" in ran.err


@pytest.mark.asyncio
async def test_on_a_terminal_it_shows_the_jobs_of_a_real_controller_until_q(folder):
    async with cluster(folder) as (_, config):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, "top", *config, "--every", "0.5",
            stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)
        written = b""
        async with asyncio.timeout(DEADLINE_S):
            while b"ineligible" not in written or b"running" not in written:
                written += await asyncio.to_thread(os.read, ours, 65536)
            os.write(ours, b"q")
            ended = asyncio.create_task(process.wait())
            while not ended.done():  # what it still writes must be read, or it would wait for us
                try:
                    await asyncio.to_thread(os.read, ours, 65536)
                except OSError:  # EIO: it has closed the terminal
                    break
            assert await ended == 0
        os.close(ours)
