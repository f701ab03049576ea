"""GPUs, read by real child processes with a fake driver library that hangs, dies and writes nonsense."""

import asyncio
import inspect
import os
import sys
from pathlib import Path

import pynvml as real_pynvml
import pytest
from structlog.testing import capture_logs

from nodeagent.errors import TelemetryError
from nodeagent.telemetry.nvml import CHILD, NoGpus, NvmlReader
from nodeagent.telemetry.nvml_rows import parse_gpus
from nodeagent.wire.report import GpmReading, GpuHealth, GpuProcess, MigReading
from tests.unit.nodeagent.telemetry.fake_nvml import pynvml as fake_pynvml

FAKE = Path(__file__).parent / "fake_nvml"
ROOT = Path(__file__).parents[4]
"""The child imports the modules that are tested, also where another folder is installed."""


class Clock:
    """A clock that stands still unless moved, for the pauses between starts; deadlines use the event loop's clock."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
async def reader(monkeypatch, tmp_path):
    """reader(behaviour) → NvmlReader over a child that behaves so."""
    made = []
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}:{ROOT}")
    monkeypatch.setenv("FAKE_NVML_STARTS", str(tmp_path / "starts"))

    def make(behaviour, deadline_s=60.0, **options):
        monkeypatch.setenv("FAKE_NVML", behaviour)
        made.append(NvmlReader(deadline_s, **{"clock": Clock()} | options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


def starts(tmp_path):
    """Return the pids of the started children."""
    path = tmp_path / "starts"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


async def ended(pid):
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.005)


def test_the_stand_in_s_requests_have_the_fields_of_the_library_s():
    for name, less in (("c_nvmlGpmMetricsGet_t", set()), ("c_nvmlGpmMetric_t", {"metricInfo"})):
        ours, theirs = ({field[0] for field in getattr(of, name)._fields_} for of in (fake_pynvml, real_pynvml))
        assert ours == theirs - less
    request = real_pynvml.c_nvmlGpmMetricsGet_t()
    request.sample1 = real_pynvml.c_nvmlGpmSample_t()  # a pointer, which an allocation gives
    request.metrics[7].metricId = real_pynvml.NVML_GPM_METRIC_SM_UTIL


def test_the_stand_in_has_only_what_the_library_has():
    ours = {name for name, value in inspect.getmembers(fake_pynvml) if name.lower().startswith("nvml")}
    assert ours - set(dir(real_pynvml)) == set()
    for name in ours:
        if name.isupper():
            assert getattr(fake_pynvml, name) == getattr(real_pynvml, name)


async def test_a_good_reading(reader, tmp_path):
    gpus = reader("good")
    first, second = await gpus.read()
    assert (first.index, first.uuid, first.pci_address) == (1, "GPU-0", "0000:3b:00.0")  # by /dev/nvidiaN
    assert (first.busy_percent, first.memory_busy_percent, first.sm_clock_mhz) == (87.0, 40.0, 1980)
    assert first.sm_percent == 70.0  # the mean of 60 and 40, and 20 of the other process
    assert (first.memory_used_bytes, first.memory_total_bytes, first.power_w) == (10 * 2**30, 80 * 2**30, 650.5)
    assert (first.pcie_tx_bytes_per_s, first.pcie_rx_bytes_per_s) == (5e6, 5.001e6)
    assert (first.nvlink_tx_bytes, first.nvlink_rx_bytes) == (7 * 1024, 8 * 1024)
    assert first.processes == (GpuProcess(100, 3 * 2**30), GpuProcess(101, None))
    assert (second.busy_percent, second.nvlink_tx_bytes, second.processes) == (None, None, ())
    again = await gpus.read()
    assert again[0].sm_percent is None  # nothing new since
    assert len(starts(tmp_path)) == 1
    assert gpus.absent == ""


async def test_the_condition_of_each_gpu_as_far_as_it_has_counters(reader):
    first, second = await reader("good").read()
    assert first.health == GpuHealth(
        temperature_c=61, power_limit_w=700.0, energy_j=4000.0, clock_events=0, power_violation_s=0.0,
        thermal_violation_s=0.0, ecc_corrected=4, ecc_uncorrected=0, rows_remapped_corrected=2,
        rows_remapped_uncorrected=1, remapping_pending=True, remapping_failed=False, pcie_replays=6,
        nvlink_crc_errors=11, nvlink_replays=11, nvlink_recoveries=None, xid_errors=0, newest_xid=None,
    )  # fmt: skip
    assert (second.health.energy_j, second.health.thermal_violation_s, second.health.xid_errors) == (None, None, None)
    assert second.health.rows_remapped_corrected is None


GPM_CHILD = (*CHILD, "--gpm")


async def test_gpm_has_means_since_the_last_reading_of_the_gpus_that_have_it(reader):
    gpus = reader("good", child=GPM_CHILD)
    assert [gpu.gpm for gpu in await gpus.read()] == [None, None]
    for _ in range(3):
        first, second = await gpus.read()
        assert first.gpm == GpmReading(
            sm_percent=75.0, sm_occupancy_percent=40.0, tensor_percent=100.0, dram_percent=62.5,
            pcie_tx_bytes_per_s=2 * 2**30, pcie_rx_bytes_per_s=0.0, nvlink_tx_bytes_per_s=2**30,
            nvlink_rx_bytes_per_s=None,
        )  # fmt: skip
        assert second.gpm is None


async def test_gpm_begins_anew_after_a_sample_that_failed(reader):
    gpus = reader("gpm gap", child=GPM_CHILD)
    assert [(await gpus.read())[0].gpm is None for _ in range(5)] == [True, True, True, False, False]


async def test_gpm_is_not_read_without_the_setting_nor_of_a_driver_without_it(reader):
    gpus = reader("good")
    assert [(await gpus.read())[0].gpm for _ in range(2)] == [None, None]
    gpus = reader("old driver", child=GPM_CHILD)
    assert [(await gpus.read())[0].gpm for _ in range(2)] == [None, None]


async def test_xid_errors_are_counted_once_and_an_old_driver_has_its_own_name_of_the_reasons(reader):
    gpus = reader("xid")
    first = (await gpus.read())[0].health
    assert (first.xid_errors, first.newest_xid) == (2, 79)
    assert (await gpus.read())[0].health.xid_errors == 2
    assert (await reader("old driver").read())[0].health.clock_events == 1


async def test_mig_instances(reader):
    first, second = await reader("mig").read()
    assert first.mig == (
        MigReading("MIG-0", 7, 0, 10 * 2**30, 80 * 2**30, (GpuProcess(300, 2**30),)),
        MigReading("MIG-2", 9, 0, 10 * 2**30, 80 * 2**30, (GpuProcess(302, 2**30),)),
    )
    assert second.mig == ()


async def test_a_gpu_that_fell_off_the_bus_takes_no_other_along(reader):
    assert [gpu.index for gpu in await reader("one lost").read()] == [1, 0]


@pytest.mark.parametrize("behaviour", ["lost later", "lost inside"])
async def test_a_gpu_that_is_lost_later_has_no_row_and_no_other_gpu_its_number(reader, behaviour):
    gpus = reader(behaviour)
    assert [gpu.index for gpu in await gpus.read()] == [1, 0]
    assert [gpu.index for gpu in await gpus.read()] == [0]


async def test_a_child_that_hangs_is_killed_and_another_started_later(reader, tmp_path):
    gpus = reader("hang", 1.0)
    await gpus.read()
    while not gpus.failures:
        assert await gpus.read() is None
    [pid] = starts(tmp_path)
    await gpus._ending
    assert not Path(f"/proc/{pid}").exists()
    assert await gpus.read() is None
    assert len(starts(tmp_path)) == 1  # not before its pause is over
    gpus._clock.now_s += 1.1
    os.environ["FAKE_NVML"] = "good"
    gpus._deadline_s = 60.0
    assert len(await gpus.read()) == 2
    assert gpus.failures == 0


@pytest.mark.parametrize("how", ["fails", "cancelled"])
async def test_no_other_child_is_started_while_it_is_not_known_that_the_killed_one_has_ended(
    reader, tmp_path, capsys, how
):
    gpus = reader("good")
    assert len(await gpus.read()) == 2
    child, wait = gpus._child, gpus._child.wait

    async def broken():
        if how == "cancelled":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        raise RuntimeError("a defect")

    child.wait = broken
    gpus._fail(child, "no answer")
    await asyncio.wait({gpus._ending})
    gpus._clock.now_s += 1.1
    # the wait that failed is logged, and begun again
    child.wait = wait
    assert await gpus.read() is None
    assert capsys.readouterr().out.count("gpu_child_not_awaited") == 1
    assert len(starts(tmp_path)) == 1
    await gpus._ending
    assert len(await gpus.read()) == 2
    assert len(starts(tmp_path)) == 2


async def test_a_child_that_hangs_later(reader, tmp_path):
    gpus = reader("once good")
    assert len(await gpus.read()) == 2
    gpus._deadline_s = 0.05
    assert await gpus.read() is None
    assert gpus.failures == 1
    await ended(starts(tmp_path)[0])


@pytest.mark.parametrize("behaviour", ["die", "nonsense", "wrong values", "flood"])
async def test_a_child_that_dies_or_talks_nonsense_is_replaced_with_pauses_that_grow(reader, tmp_path, behaviour):
    gpus = reader(behaviour)
    for pause_s, failures in ((1, 1), (2, 2), (4, 3)):
        assert await gpus.read() is None
        assert gpus.failures == failures
        await gpus._ending
        gpus._clock.now_s += pause_s - 0.1
        assert await gpus.read() is None
        assert len(starts(tmp_path)) == failures
        gpus._clock.now_s += 0.2


async def test_no_driver_is_said_once(reader, tmp_path, capsys):
    gpus = reader("absent")
    for _ in range(3):
        assert await gpus.read() is None
        gpus._clock.now_s += 601
        await gpus._ending
    assert gpus.absent == "NVML Shared Library Not Found"
    assert capsys.readouterr().out.count("no_gpus") == 1
    assert len(starts(tmp_path)) == 3
    assert gpus.failures == 0


async def test_a_driver_that_is_loaded_later(reader):
    gpus = reader("absent")
    assert await gpus.read() is None
    await gpus._ending
    os.environ["FAKE_NVML"] = "good"
    assert await gpus.read() is None  # tried again after ten minutes
    gpus._clock.now_s += 601
    assert len(await gpus.read()) == 2
    assert gpus.absent == ""


async def test_a_slow_start_is_waited_for_over_several_readings(reader, tmp_path):
    gpus = reader("slow to start", 0.05)
    assert await gpus.read() is None  # the start takes a second at least
    gpus._deadline_s = 60.0  # for however long a busy machine takes to start the child and to answer
    assert len(await gpus.read()) == 2
    assert len(starts(tmp_path)) == 1


async def test_a_child_that_was_ready_late_in_a_reading_is_left_for_the_next_one(reader, tmp_path):
    gpus = reader("good", 60.0)
    greeted = gpus._greeted

    def late(child, absent):
        gpus._clock.now_s += 59.9999
        greeted(child, absent)

    gpus._greeted = late
    assert await gpus.read() is None
    assert gpus.failures == 0
    assert len(await gpus.read()) == 2
    assert len(starts(tmp_path)) == 1


async def test_a_start_that_hangs_is_given_up(reader, tmp_path):
    gpus = reader("hang at start", start_deadline_s=0.8)
    while not gpus.failures:
        assert await gpus.read() is None
    for pid in starts(tmp_path):
        await ended(pid)


async def test_as_long_as_the_driver_holds_one_no_other_is_started(reader, tmp_path):
    """A process inside the driver dies only when the driver returns; the test uses a future that is not done."""
    gpus = reader("die")
    assert await gpus.read() is None
    await gpus._ending
    gpus._ending = asyncio.get_running_loop().create_future()
    gpus._clock.now_s += 100
    for _ in range(3):
        assert await gpus.read() is None
    assert len(starts(tmp_path)) == 1
    gpus._ending.set_result(0)
    os.environ["FAKE_NVML"] = "good"
    assert len(await gpus.read()) == 2


async def test_a_program_that_cannot_be_started(reader):
    gpus = reader("good", child=("/no/such/python",))
    assert await gpus.read() is None
    assert gpus.failures == 1


async def test_closing_ends_the_child(reader, tmp_path):
    gpus = reader("good")
    await gpus.read()
    await gpus.close()
    await ended(starts(tmp_path)[0])


async def test_the_child_ends_with_its_standard_input(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    child = await asyncio.create_subprocess_exec(*CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate(b"what?\nread\n")
    assert child.returncode == 0
    assert len(said.splitlines()) == 2  # ready, and one answer


async def test_on_this_machine_the_real_library_answers_or_says_why_not():
    gpus = NvmlReader(60.0)
    found = await gpus.read()
    await gpus.close()
    assert (found is None) == bool(gpus.absent)


async def test_switched_off():
    assert await NoGpus().read() is None
    await NoGpus().close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1]",
        b"{",
        b"[" * 100_000,
        b'{"gpus": {}}',
        b'{"gpus": [1]}',
        b'{"gpus": [{}]}',
        b'{"gpus": [{"index": "0"}]}',
        b'{"gpus": [{"index": -1}]}',
        b'{"gpus": [{"index": 0, "power_w": NaN}]}',
        b'{"gpus": [{"index": 0, "busy_percent": 101}]}',
        b'{"gpus": [{"index": 0, "uuid": 5}]}',
        b'{"gpus": [{"index": 0, "processes": [{"pid": null}]}]}',
        b'{"gpus": [{"index": 0, "processes": {}}]}',
    ],
)
def test_answers_that_are_none(line):
    with pytest.raises(TelemetryError):
        parse_gpus(line)


def test_python_is_the_agent_s_own():
    assert CHILD[0] == sys.executable


async def test_an_error_that_nobody_expects_is_put_off_like_any_other(reader, monkeypatch):
    async def broken(*_argv, **_options):
        raise RuntimeError("no child watcher")

    gpus = reader("good")
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "create_subprocess_exec", broken)
        assert await gpus.read() is None
        assert gpus.failures == 1
        assert await gpus.read() is None  # not before the pause is over
        assert gpus.failures == 1
    gpus._clock.now_s += 60
    assert len(await gpus.read()) == 2


async def test_a_start_that_others_cancel_is_logged_counted_and_tried_again(reader):
    gpus = reader("good")
    reading = asyncio.create_task(gpus.read())
    await asyncio.sleep(0)
    gpus._starting.cancel()
    with capture_logs() as logs:
        assert await reading is None
    assert gpus.failures == 1
    assert [(entry["event"], entry["problem"]) for entry in logs] == [("gpu_child_failed", "its start was cancelled")]
    gpus._clock.now_s += 60
    while (found := await gpus.read()) is None:  # a child that had started before is still ending
        await asyncio.sleep(0.005)
    assert len(found) == 2


async def test_the_answer_to_a_cancelled_reading_is_not_taken_for_the_next(reader, tmp_path):
    gpus = reader("good")
    await gpus.read()
    reading = asyncio.create_task(gpus.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    [first] = starts(tmp_path)
    await ended(first)
    gpus._clock.now_s += 60
    while (found := await gpus.read()) is None:  # the event loop has not heard of its end yet
        await asyncio.sleep(0.005)
    assert len(found) == 2
    assert len(starts(tmp_path)) == 2
