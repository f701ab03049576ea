"""A real Prometheus reads what an agent has written, through the real node_exporter: alerts and panels of the nodes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.metrics.textfile import MetricsFile
from nodeagent.wire.report import GpmReading, GpuHealth, NodeReport
from tests.unit.docs.monitoring.exported import NODE_ALERTS, NODES, alerts, panel_queries
from tests.unit.docs.monitoring.test_prometheus import Prometheus, free_port
from tests.unit.nodeagent.metrics.test_textfile import GPU, HEALTH, JOB, REPORT
from tests.unit.policies.processes import eventually, running

EXPORTER = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
FINE = replace(HEALTH, remapping_pending=False, xid_errors=0, newest_xid=None)
FAILED = replace(FINE, remapping_pending=True, remapping_failed=True)
DUE = {"HeadwayGpuLost", "HeadwayGpuRowRemappingFailed", "HeadwayGpuRowRemappingPending"}

pytestmark = pytest.mark.skipif(
    EXPORTER is None or shutil.which("prometheus") is None,
    reason="no prometheus or node_exporter here: apt-get install prometheus prometheus-node-exporter",
)


def report(health: GpuHealth, lost: tuple[int, ...] = ()) -> NodeReport:
    """A report of now; the job has made a step more in each second."""
    steps = int(time.time()) % 1_000_000
    job = replace(JOB, steps=steps, steps_per_s=1.0, idle_gpus=(0,), gpus=(0,))
    gpu = replace(GPU, gpm=GpmReading(tensor_percent=35.0, dram_percent=50.0, nvlink_tx_bytes_per_s=5e9), health=health)
    nic = replace(REPORT.nics[0], tx_bytes_per_s=1e9, events=(("port_xmit_wait", steps),))
    return replace(REPORT, time_s=time.time(), jobs=(job,), gpus=(gpu,), nics=(nic,), lost_gpus=lost)


@contextmanager
def read_by_prometheus(folder: Path) -> Iterator[Prometheus]:
    """Run node_exporter on that folder, and a Prometheus that reads it each second."""
    exporter, port = free_port(), free_port()
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{NODE_ALERTS}]\n"
        f'scrape_configs: [{{job_name: node, static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]}}]\n'
    )
    assert EXPORTER is not None
    with (
        running(
            EXPORTER, "--collector.disable-defaults", "--collector.textfile",
            f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{exporter}", "--log.level=error",
        ),
        running(
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ),
    ):  # fmt: skip
        yield Prometheus(port)


async def test_alerts_and_panels_of_a_node_that_is_well_and_then_has_failing_gpus(tmp_path: Path) -> None:
    file, health, lost = MetricsFile(tmp_path / "headway.prom"), FINE, ()
    file.write(report(health))
    with read_by_prometheus(tmp_path) as prometheus:

        async def has_read(times: int) -> bool:
            file.write(report(health, lost))
            try:
                found = await prometheus.query("count_over_time(headway_agent_report_timestamp_seconds[5m])")
            except OSError:
                return False  # it is starting
            return bool(found) and int(found[0]["value"][1]) >= times

        # given a node that is well, then node_exporter takes the file, every panel shows something, and no alert is active
        await eventually(lambda: has_read(4))
        assert (await prometheus.query("node_textfile_scrape_error"))[0]["value"][1] == "0"
        shown = {title: re.sub(r" > 0$", "", query) for title, query in panel_queries(NODES)}
        assert [title for title, query in shown.items() if not await prometheus.query(query)] == []
        (power,) = await prometheus.query(
            "headway_gpu_power_watts * on (node, gpu) group_left (job_id) headway_gpu_job"
        )
        assert (power["metric"]["job_id"], power["value"][1]) == ("7", "650.5")
        assert await prometheus.active() == set()
        # when a GPU is lost, and another one cannot remap a row of its memory
        health, lost = FAILED, (3,)
        file.write(report(health, lost))

        # then the alerts of these are active, and no others
        async def active() -> bool:
            file.write(report(health, lost))
            return await prometheus.active() >= DUE

        await eventually(active)
        assert await prometheus.active() == DUE < alerts(NODE_ALERTS).keys()
