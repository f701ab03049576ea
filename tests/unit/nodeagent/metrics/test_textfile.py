"""The node's metrics, read as Prometheus reads them."""

from __future__ import annotations

import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.metrics.textfile import MetricsFile
from nodeagent.telemetry.sampler import _silent
from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.wire.report import (
    GpmReading,
    GpuHealth,
    GpuReading,
    ImpairedGpu,
    JobPressure,
    JobUsage,
    NicReading,
    NodeReport,
    SocketCounters,
)

HEALTH = GpuHealth(
    temperature_c=61, power_limit_w=700.0, energy_j=4000.5, clock_events=0x24, power_violation_s=1.5,
    thermal_violation_s=0.0, ecc_corrected=4, ecc_uncorrected=0, rows_remapped_corrected=2,
    rows_remapped_uncorrected=1, remapping_pending=True, remapping_failed=False, pcie_replays=6, xid_errors=1,
    newest_xid=79,
)  # fmt: skip
GPU = GpuReading(
    0, "GPU-1", 'an "H100"', "0000:3b:00.0", 87.0, None, 1980, 40.0, 10 * 2**30, 80 * 2**30, 650.5, 5e6, 6e6, 7168,
    8192, None, health=HEALTH, gpm=GpmReading(tensor_percent=35.0, nvlink_tx_bytes_per_s=5e9),
)  # fmt: skip
NIC = NicReading(
    "mlx5_0/1", "infiniband", 400_000_000_000, True, 1e9, None, (("port_xmit_wait", 12), ("np_cnp_sent", 3))
)
JOB = replace(
    _silent(SlurmJob(7, 1000, 0, (), frozenset(), (0,)), 1), gpus=(0,), idle_gpus=(), steps=12, energy_j=250.0,
    impaired=(ImpairedGpu(0, ("power",)),), usage=JobUsage(3.5, 2**20, "cgroup"),
    pressure=JobPressure(cpu_some_s=0.5, io_full_s=0.25, throttled_periods=9, throttled_s=1.25),
)  # fmt: skip
REPORT = NodeReport("n1", 1_700_000_000.0, 1, 5.0, (JOB,), (GPU,), (NIC,), SocketCounters(0, 0, 0, 0, 0, 0, 0), (3,))


def values(path: Path) -> dict[tuple[Any, ...], float]:
    """Name and labels (without the node's) to value."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            assert sample.labels.pop("node") == "n1"
            found[sample.name, *(f"{name}={text}" for name, text in sample.labels.items())] = sample.value
    return found


def test_every_measurement_is_a_series_with_node_gpu_and_job(tmp_path: Path) -> None:
    path = tmp_path / "headway.prom"
    MetricsFile(path).write(REPORT)
    found = values(path)
    expected = {
        ("headway_gpu_busy_ratio", "gpu=0"): 0.87, ("headway_gpu_sm_clock_hertz", "gpu=0"): 1.98e9,
        ("headway_gpu_power_watts", "gpu=0"): 650.5, ("headway_gpu_energy_joules_total", "gpu=0"): 4000.5,
        ("headway_gpu_temperature_celsius", "gpu=0"): 61.0, ("headway_gpu_power_violation_seconds_total", "gpu=0"): 1.5,
        ("headway_gpu_clock_event", "gpu=0", "reason=sw_power_cap"): 1.0,
        ("headway_gpu_clock_event", "gpu=0", "reason=sw_thermal"): 1.0,
        ("headway_gpu_clock_event", "gpu=0", "reason=hw_thermal"): 0.0,
        ("headway_gpu_row_remapping_pending", "gpu=0"): 1.0, ("headway_gpu_xid_errors_total", "gpu=0"): 1.0,
        ("headway_gpu_newest_xid", "gpu=0"): 79.0, ("headway_gpu_nvlink_tx_bytes_total", "gpu=0"): 7168.0,
        ("headway_gpu_info", "gpu=0", "uuid=GPU-1", 'name=an "H100"', "pci=0000:3b:00.0"): 1.0,
        ("headway_gpu_job", "gpu=0", "job_id=7"): 1.0, ("headway_gpu_lost", "gpu=0"): 0.0, ("headway_gpu_lost", "gpu=3"): 1.0,
        ("headway_gpu_gpm_tensor_active_ratio", "gpu=0"): 0.35, ("headway_gpu_gpm_nvlink_tx_bytes_per_second", "gpu=0"): 5e9,
        ("headway_nic_speed_bytes_per_second", "nic=mlx5_0/1"): 5e10,
        ("headway_nic_events_total", "nic=mlx5_0/1", "event=port_xmit_wait"): 12.0,
        ("headway_nic_events_total", "nic=mlx5_0/1", "event=np_cnp_sent"): 3.0,
        ("headway_job_steps_total", "job_id=7"): 12.0, ("headway_job_impaired_gpus", "job_id=7"): 1.0,
        ("headway_job_energy_joules_total", "job_id=7"): 250.0, ("headway_job_cpu_seconds_total", "job_id=7"): 3.5,
        ("headway_job_cpu_throttled_periods_total", "job_id=7"): 9.0,
        ("headway_job_stall_seconds_total", "job_id=7", "resource=cpu", "kind=some"): 0.5,
        ("headway_job_stall_seconds_total", "job_id=7", "resource=io", "kind=full"): 0.25,
        ("headway_agent_gpus_read",): 1.0, ("headway_agent_jobs_left_out",): 0.0,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    # and what is not known has no series
    assert not [
        key
        for key in found
        if key[0] in {"headway_gpu_sm_ratio", "headway_gpu_gpm_sm_active_ratio", "headway_nic_tx_bytes_per_second"}
    ]
    assert not [key for key in found if "resource=memory" in key]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is part of Debian's package prometheus")
def test_prometheus_own_linter_finds_no_fault(tmp_path: Path) -> None:
    MetricsFile(tmp_path / "headway.prom").write(REPORT)
    with (tmp_path / "headway.prom").open() as file:
        done = subprocess.run(["promtool", "check", "metrics"], stdin=file, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_number_of_series_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "headway.prom"
    jobs = tuple(replace(JOB, job_id=number) for number in range(1000, 0, -1))
    MetricsFile(path).write(replace(REPORT, jobs=jobs, gpus=(GPU,) * 2000, nics=(NIC,) * 2000))
    found = values(path)
    assert found[("headway_agent_jobs_left_out",)] == 1000 - 256
    assert {key[1] for key in found if key[0] == "headway_job_steps_total"} == {f"job_id={n}" for n in range(1, 257)}
    assert path.read_text().count("\nheadway_gpu_power_watts{") == 256
    assert path.read_text().count("\nheadway_nic_up{") == 128


def test_a_file_that_cannot_be_written_costs_nothing_and_an_end_leaves_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = MetricsFile(tmp_path / "nowhere" / "headway.prom")
    lacking.write(REPORT)
    lacking.write(REPORT)
    assert capsys.readouterr().out.count("metrics_not_written") == 1
    path = tmp_path / "headway.prom"
    file = MetricsFile(path)
    # what another user laid there is replaced, and not written through
    (tmp_path / ".headway.prom.new").symlink_to(tmp_path / "other")
    file.write(REPORT)
    assert [each.name for each in tmp_path.iterdir()] == ["headway.prom"]
    file.remove()
    file.remove()
    assert not list(tmp_path.iterdir())
    MetricsFile(None).write(REPORT)
