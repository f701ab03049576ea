"""Traffic of interfaces: counters that wrap, vanish and begin again."""

import os
import shutil
import threading
import time

import pytest
from structlog.testing import capture_logs

from nodeagent.telemetry import network
from nodeagent.telemetry.network import NicCounters, interfaces, rate
from nodeagent.wire.report import NicReading
from tests.unit.nodeagent.identity.trees import nic, plant, port

S = 1_000_000_000


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """All cores may be busy."""
    monkeypatch.setattr(network, "_TIMEOUT_S", 30.0)


def test_rates_between_two_readings(tmp_path):
    counters = NicCounters(root=plant(tmp_path, nic("eth0", 1_000, 2_000)))
    assert counters.read(0) == (NicReading("eth0", "ethernet", 100_000_000_000, True, None, None),)
    plant(tmp_path, nic("eth0", 11_000, 2_000))
    assert counters.read(2 * S) == (NicReading("eth0", "ethernet", 100_000_000_000, True, 5_000.0, 0.0),)


def test_infiniband_counts_words_of_four_bytes(tmp_path):
    counters = NicCounters(root=plant(tmp_path, port(100, 200)))
    counters.read(0)
    plant(tmp_path, port(350, 1_200))
    assert counters.read(S) == (NicReading("mlx5_0/1", "infiniband", 100_000_000_000, True, 1_000.0, 4_000.0),)


def test_errors_waits_and_congestion_are_counted_by_the_kernels_names(tmp_path):
    files = port(100, 200)
    folder = next(iter(files)).rpartition("/counters/")[0]
    more = {f"{folder}/counters/port_xmit_wait": "12", f"{folder}/hw_counters/np_ecn_marked_roce_packets": "7"}
    plant(tmp_path, files | more | nic("eth0", 1) | {"class/net/eth0/statistics/rx_dropped": "3"})
    ethernet, infiniband = NicCounters(root=tmp_path).read(0)
    assert ethernet.events == (("rx_dropped", 3),)
    assert infiniband.events == (("port_xmit_wait", 12), ("np_ecn_marked_roce_packets", 7))


def test_an_infiniband_counter_of_32_bits_wraps(tmp_path):
    counters = NicCounters(root=plant(tmp_path, port(2**32 - 100, 0)))
    counters.read(0)
    plant(tmp_path, port(150, 0))
    assert counters.read(S)[0].rx_bytes_per_s == 1_000.0


@pytest.mark.parametrize(
    ("before", "now", "speed", "found"),
    [
        (2**32 - 1_000, 1_000, 10**9, 1_000.0),  # wrapped, in 2 s
        (2**32 - 1_000, 1_000, None, None),  # not known
        (1_000_000, 1_000, 10**9, None),  # 4 GB over 1 Gbit/s in 2 s: the counter was reset
        (2**40, 5, 10**9, None),  # was wider than 32 bits
        (None, 5, 10**9, None),
        (5, None, 10**9, None),
        (5, 5, None, 0.0),
    ],
)
def test_counters_that_fall(before, now, speed, found):
    assert rate(before, now, 2.0, speed) == found
    assert rate(5, 6, 0.0, speed) is None


def test_an_interface_that_was_made_again_has_no_rate_at_first(tmp_path):
    counters = NicCounters(root=plant(tmp_path, nic("eth0", 100, index=2)))
    counters.read(0)
    plant(tmp_path, nic("eth0", 5_000, index=9))
    assert counters.read(S)[0].rx_bytes_per_s is None
    plant(tmp_path, nic("eth0", 6_000, index=9))
    assert counters.read(2 * S)[0].rx_bytes_per_s == 1_000.0


def test_an_interface_that_vanishes_and_comes_back(tmp_path):
    counters = NicCounters(root=plant(tmp_path, nic("eth0", 100) | nic("eth1", 100)))
    counters.read(0)
    shutil.rmtree(tmp_path / "class/net/eth1")
    assert [row.name for row in counters.read(S)] == ["eth0"]
    plant(tmp_path, nic("eth1", 900))
    assert [(row.name, row.rx_bytes_per_s) for row in counters.read(2 * S)] == [("eth0", 0.0), ("eth1", None)]


def test_a_cable_that_is_out(tmp_path):
    counters = NicCounters(root=plant(tmp_path, nic("eth0", speed=-1) | {"class/net/eth0/operstate": "down"}))
    assert counters.read(0) == (NicReading("eth0", "ethernet", None, False, None, None),)
    (tmp_path / "class/net/eth0/statistics/rx_bytes").write_text("?")
    (tmp_path / "class/net/eth0/speed").unlink()
    assert counters.read(S)[0].rx_bytes_per_s is None


def everything():
    return (
        nic("eth0")
        | nic("ib0")
        | nic("veth7", hardware=False)
        | nic("docker0", hardware=False)
        | {"class/net/docker0/bridge/": ""}
        | nic("bond0", hardware=False)
        | {"class/net/bond0/bonding/": "", "class/net/bonding_masters": "bond0"}
        | nic("lo", hardware=False)
        | {"class/net/lo/type": 772}
        | port(0, 0)
    )


def names(root, wanted=()):
    return [interface.name for interface in interfaces(root, wanted)]


def test_which_interfaces_count(tmp_path):
    assert names(plant(tmp_path, everything())) == ["eth0", "ib0", "mlx5_0/1"]
    assert names(tmp_path, ["veth*", "mlx5_*"]) == ["veth7", "mlx5_0/1"]
    assert names(tmp_path, ["lo"]) == []


def test_without_hardware_all_but_loopback_and_bridges_count(tmp_path):
    virtual = {name: text for name, text in everything().items() if "/eth0/" not in name and "/ib0/" not in name}
    assert names(plant(tmp_path, virtual)) == ["veth7", "mlx5_0/1"]
    assert names(tmp_path / "nothing") == []


def test_the_real_machine():
    counters = NicCounters()
    first = counters.read(time.monotonic_ns())
    second = counters.read(time.monotonic_ns())
    assert [row.name for row in first] == [row.name for row in second]
    assert all(row.rx_bytes_per_s is None for row in first)
    assert all(row.rx_bytes_per_s is not None and row.rx_bytes_per_s >= 0 for row in second)


def test_a_driver_that_hangs_costs_the_rows_of_interfaces_and_one_thread(tmp_path, monkeypatch):
    """The test uses a pipe without a writer."""
    monkeypatch.setattr(network, "_TIMEOUT_S", 0.1)
    counters = NicCounters(root=plant(tmp_path, nic("eth0", 1_000, 2_000) | nic("eth1", 5, 5)))
    file = tmp_path / "class/net/eth0/statistics/rx_errors"
    os.mkfifo(file)
    with capture_logs() as logs:
        assert [counters.read(0) for _ in range(5)] == [()] * 5
    assert [line["event"] for line in logs] == ["nics_not_read"]
    (held,) = [thread for thread in threading.enumerate() if thread.name == "bounded-read"]
    # until the driver answers
    file.open("w").close()
    held.join()
    file.unlink()
    counters._reader._timeout_s = 30.0
    assert [row.name for row in counters.read(2 * S)] == ["eth0", "eth1"]
    assert counters.read(4 * S)[0].rx_bytes_per_s == 0.0
