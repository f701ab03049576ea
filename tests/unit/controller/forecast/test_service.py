"""Estimates beside the cycles: when they are made, what a failure costs, and how users see them."""

import asyncio
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from controller.admin.serve import serve_admin
from controller.forecast.process import ForecastError, ForecastProcess
from controller.forecast.request import Answer, Waits, decode_request
from controller.forecast.service import TRACKS_FILE, StartForecasts, forecast_starts
from protos.headway.v1 import admin_pb2 as pb
from protos.headway.v1 import admin_pb2_grpc
from tests.unit.controller.worlds.controller_world import world_in


class FakeForecaster:
    """Answers a minute to five for each waiting job, or fails."""

    def __init__(self):
        self.requests = []
        self.fails = False
        self.held = self.missed = 0

    async def answer(self, request):
        self.requests.append(decode_request(request))
        if self.fails:
            raise ForecastError("no processor")
        pending = self.requests[-1].state.pending.tolist()
        return Answer("", [Waits(row, 60.0, 120.0, 300.0, 8, 10) for row in pending], self.held, self.missed)


@pytest.fixture
def folder():
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def waiting_world(folder):
    """A cluster that one job fills, and another that waits for it."""
    world = world_in(folder, settings_changes={"state_dir": folder})
    world.endpoint.away = True
    world.sbatch(3600.0, gpus_per_node=8, nodes=4, time_limit_s=3600.0)
    await world.go_on(2)
    key = world.sbatch(60.0, gpus_per_node=8, user="ann", name="train")
    await world.turn()
    return world, key


def forecasts_in(world):
    fake = FakeForecaster()
    return fake, StartForecasts(fake, world.clock, world.folder / "journal.sqlite", world.folder / TRACKS_FILE)


async def test_a_forecast_knows_the_queue_and_answers_by_job(folder):
    world, key = await waiting_world(folder)
    fake, forecasts = forecasts_in(world)
    assert forecasts.of(key) is None
    await forecasts.make(world.last, "fifo")

    asked = fake.requests[0]
    assert (asked.policy, asked.users[1], asked.names[1], asked.limits_s[0]) == ("fifo", "ann", "train", 3600.0)
    assert asked.order == [1]
    found = forecasts.of(key)
    assert found.earliest_s == asked.state.time_s + 60.0 and found.latest_s == asked.state.time_s + 300.0


async def test_forecasts_are_seldom_and_a_new_job_comes_sooner(folder):
    world, _ = await waiting_world(folder)
    _, forecasts = forecasts_in(world)
    assert forecasts.due(world.last, 60.0)
    await forecasts.make(world.last, "fifo")
    assert not forecasts.due(world.last, 60.0)
    await world.go_on(15)
    assert not forecasts.due(world.last, 60.0)
    world.sbatch(gpus_per_node=8)
    await world.turn()
    assert forecasts.due(world.last, 60.0)
    await forecasts.make(world.last, "fifo")
    await world.go_on(61)
    assert forecasts.due(world.last, 60.0)


async def test_a_failure_leaves_the_last_estimates_until_they_are_old(folder):
    world, key = await waiting_world(folder)
    fake, forecasts = forecasts_in(world)
    await forecasts.make(world.last, "fifo")
    fake.fails = True
    await world.go_on(100, 10.0)
    await forecasts.make(world.last, "fifo")
    assert forecasts.of(key) is not None
    await world.go_on(600, 60.0)
    assert forecasts.of(key) is None


async def test_a_process_that_breaks_hangs_or_talks_nonsense_is_an_error(folder):
    with pytest.raises(ForecastError, match="status 3: oh"):
        await ForecastProcess([sys.executable, "-c", "import sys; sys.exit(sys.stderr.write('oh') + 1)"]).answer(b"x")
    with pytest.raises(ForecastError, match=r"within 0\.2 s"):
        await ForecastProcess(["/bin/sleep", "60"], within_s=0.2).answer(b"x")
    with pytest.raises(ForecastError, match="cannot be read"):
        await ForecastProcess(["/bin/echo", "5"]).answer(b"")
    with pytest.raises(ForecastError, match="cannot be started"):
        await ForecastProcess(["/nowhere/program"]).answer(b"")


async def test_a_process_ends_with_the_controller():
    begun = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ForecastProcess(["/bin/sleep", "60"]).answer(b"x")
    assert asyncio.get_running_loop().time() - begun < 30


@asynccontextmanager
async def estimating(world):
    """The service with its real process, and a stub of the status socket."""
    async with (
        forecast_starts(world, look_every_s=0.02) as forecasts,
        serve_admin(world, world.folder, "", starts=forecasts.of),
        grpc.aio.insecure_channel(f"unix:{world.folder / 'status.sock'}") as channel,
    ):
        yield forecasts, admin_pb2_grpc.AdminStub(channel)


async def test_why_and_the_queue_show_a_range_from_the_real_process(folder):
    # given a job that waits for one with an hour of time limit, under the fallback fifo
    world, key = await waiting_world(folder)
    # when the process has made its first forecast
    async with estimating(world) as (forecasts, status):
        async with asyncio.timeout(100):
            while forecasts.of(key) is None:
                await asyncio.sleep(0.05)
        found = await status.Why(pb.WhyRequest(job_id=key.job_id))
        entries = {entry.job_id: entry for entry in (await status.GetQueue(pb.GetQueueRequest())).entries}
    # then both show a range within that hour, and no share of earlier ranges yet
    now_s = world.clock.now()
    assert now_s <= found.start.earliest_s <= found.start.median_s <= found.start.latest_s <= now_s + 3601.0
    assert "It is expected to start" in found.sentence and "too few such estimates yet" in found.sentence
    assert (found.start.known, found.start.stand_in) == (0, "")
    assert entries[key.job_id].start == found.start
    assert not entries["1"].HasField("start")
    # and the range is followed
    assert f'"{key.job_id}"' in (folder / TRACKS_FILE).read_text()


async def test_no_estimates_are_made_where_the_settings_want_none(folder):
    world, key = await waiting_world(folder)
    world.settings = world.settings.model_copy(update={"start_estimates_every_s": 0.0})
    fake = FakeForecaster()
    async with forecast_starts(world, fake, look_every_s=0.01) as forecasts:
        await asyncio.sleep(0.05)
        assert forecasts.of(key) is None and fake.requests == []
