"""A real Prometheus reads a real controller: alerts and panels have the values that the controller's state calls for."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from controller.admin.explain.wait_reason import FOR_GPUS
from tests.unit.docs.monitoring.exported import ALERTS, DASHBOARDS, alerts, panel_queries
from tests.unit.policies.processes import eventually, running

CONTROLLER = "from controller.daemon.cli import main; main()"
CLUSTER = """
[[nodes]]
names = "n[1-2]"
[[partitions]]
name = "dl"
[[jobs]]
gpus = 8
nodes = 2
duration_s = 3000
[[jobs]]
at_s = 0.2
gpus = 4
duration_s = 3000
"""
PENDING_WITHOUT_SERVER = {"HeadwayFallbackDecides"}
"""Alerts of a controller without a policy server, with a job that waits."""
PENDING_WHEN_KILLED = {"HeadwayControllerDown", "HeadwayJobsHeldWhileAway"}
EMPTY = {
    "Continued learning", "History that a policy learns from", "Notifications per hour", "Time of a preemption, 95 %",
    "Reports left out and streams refused, per minute", "Last check of the watchdog", "Most slowed-down jobs",
}  # fmt: skip
"""Panels without anything to show: no policy that learns, no receiver, no preemption, no agent, no watchdog."""

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus here: apt-get install prometheus"
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Prometheus:
    """The HTTP API of a Prometheus on loopback."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/"

    async def get(self, path: str, **parameters: str) -> Any:
        url = f"{self._base}{path}?{urllib.parse.urlencode(parameters)}"
        return await asyncio.to_thread(self._get, url)

    @staticmethod
    def _get(url: str) -> Any:
        with urllib.request.urlopen(url, timeout=60) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success"
        return answer["data"]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        return list((await self.get("query", query=expression))["result"])

    async def active(self) -> set[str]:
        """Alerts whose condition holds: pending, or firing already."""
        return {alert["labels"]["alertname"] for alert in (await self.get("alerts"))["alerts"]}

    def has_read(self, times: int) -> Callable[[], Any]:
        """Return a check that the controller was scraped so often after its first cycle."""

        async def check() -> bool:
            try:
                found = await self.query("count_over_time(headway_gpus_total[5m])")
            except OSError:
                return False  # it is starting
            return bool(found) and int(found[0]["value"][1]) >= times

        return check


def write_files(folder: Path, exporter: int) -> None:
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "controller.toml").write_text(
        f'partitions = ["dl"]\npoll_interval_s = 1.0\nslurm_client = "embedded"\nembedded_cluster = "{folder}/cluster.toml"\n'
        f'runtime_dir = "{folder}"\nstate_dir = "{folder}/state"\npolicy_address = "unix://{folder}/policy.sock"\n'
        f'metrics_address = "127.0.0.1:{exporter}"\nagents_address = "unix://{folder}/agents.sock"\n'
    )
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{ALERTS}]\n"
        f'scrape_configs: [{{job_name: headway, static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]}}]\n'
    )


async def test_alerts_and_panels_of_a_controller_that_lives_and_is_killed(tmp_path: Path) -> None:
    # given a controller without a policy server, one of whose jobs waits, and a Prometheus that reads it
    exporter, port = free_port(), free_port()
    write_files(tmp_path, exporter)
    prometheus = Prometheus(port)
    with ExitStack() as stack:
        controller = stack.enter_context(
            running(sys.executable, "-c", CONTROLLER, "run", "--config", str(tmp_path / "controller.toml"))
        )
        stack.enter_context(
            running(
                "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
            )
        )  # fmt: skip
        await eventually(prometheus.has_read(4))
        # then it accepts every rule, and only the alert that is due is active
        groups = (await prometheus.get("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == alerts().keys()
        await eventually(lambda: _all_evaluated(prometheus))
        await eventually(lambda: _active(prometheus, PENDING_WITHOUT_SERVER))
        assert await prometheus.active() == PENDING_WITHOUT_SERVER
        # and every panel, after the first estimate of a start, shows something, except where there is nothing to show
        await eventually(lambda: prometheus.query("headway_start_forecast_wait_seconds"))
        empty = set()
        for path in DASHBOARDS:
            for title, expression in panel_queries(path):
                if not await prometheus.query(re.sub(r" > 0$", "", expression)):
                    empty.add(title)
        assert empty == EMPTY
        assert (await prometheus.query('headway_jobs{role="waiting"}'))[0]["value"][1] == "1"
        # and the job that waits is there by its number, with its reason
        (wait,) = await prometheus.query("headway_job_wait_seconds")
        assert (wait["metric"]["job_id"], wait["metric"]["reason"]) == ("2", FOR_GPUS)
        # when the controller is killed, then the two alerts of that follow
        controller.kill()
        await eventually(lambda: _active(prometheus, PENDING_WHEN_KILLED))
        text = {
            each["labels"]["alertname"]: each["annotations"]["summary"]
            for each in (await prometheus.get("alerts"))["alerts"]
        }
        assert (
            text["HeadwayJobsHeldWhileAway"] == f"1 jobs were held when the controller on 127.0.0.1:{exporter} failed"
        )


async def _all_evaluated(prometheus: Prometheus) -> bool:
    groups = (await prometheus.get("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, [rule.get("lastError") for rule in rules]
    return all(rule["health"] == "ok" for rule in rules)


async def _active(prometheus: Prometheus, wanted: set[str]) -> bool:
    return wanted <= await prometheus.active()
