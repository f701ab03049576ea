"""Every metric that a controller can export, and the queries of the dashboards and alerts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.metrics_core import Metric

from controller.admin.metrics.exporter import make_registry
from controller.admin.metrics.metered_client import MeteredClient
from controller.agents.node_table import NodeStatus
from controller.base.lease import Lease, write_lease
from controller.contention.measurement import Measurement
from controller.forecast.process import ForecastProcess
from controller.forecast.service import StartForecasts
from controller.notify.outbox import Outbox
from policies.api import LearningStatus, PolicySpec
from tests.unit.controller.worlds.controller_world import world_in

FOLDER = Path(__file__).parents[4] / "docs/monitoring"
ALERTS = FOLDER / "headway-alerts.yaml"
NODE_ALERTS = FOLDER / "headway-node-alerts.yaml"
NODES = FOLDER / "headway-nodes.json"
"""Alerts and dashboard of the metrics that agents write on their nodes."""
DASHBOARDS = sorted(set(FOLDER.glob("*.json")) - {NODES})


class NoAgents:
    """A server without agents."""

    nodes: Mapping[str, NodeStatus] = {}
    reports = 0
    refused: Mapping[str, int] = {}
    left_out: Mapping[str, int] = {}


async def exported(folder: Path) -> list[Metric]:
    """Return the families of a controller with agents, receivers, and a policy that goes on learning."""
    world = world_in(folder)
    measurement = Measurement(NoAgents(), folder / "profiles.sqlite", window_s=30.0)
    await world.turn()
    learning = LearningStatus(change=0.1, ci95=0.2)
    server = world.decider._server
    world.decider._server = replace(server, spec=PolicySpec(name="learns", source="tests", learning=learning))
    write_lease(world.settings.lease_path, Lease(1_000_000_000, 30.0, ("dl",), 0, 0))
    world.client = MeteredClient(world.slurm.client, world.clock)
    forecasts = StartForecasts(ForecastProcess(), world.clock, folder / "journal.sqlite", folder / "tracks")
    receivers = [Outbox("webhook", lambda _: None)]
    return list(make_registry(world, measurement, receivers, "lab", forecasts=forecasts).collect())


def names(families: Iterable[Metric]) -> set[str]:
    """Return the names as Prometheus has them; of a histogram the name without suffix."""
    suffixes = {"counter": "_total", "info": "_info"}
    return {family.name + suffixes.get(family.type, "") for family in families}


def alerts(path: Path = ALERTS) -> dict[str, dict[str, Any]]:
    """Return every alert by its name."""
    groups = yaml.safe_load(path.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def dashboard(path: Path) -> dict[str, Any]:
    """Return a dashboard."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panel_queries(path: Path) -> Iterator[tuple[str, str]]:
    """Yield title and expression, without Grafana's variables, of every query of a dashboard."""
    for panel in dashboard(path)["panels"]:
        for target in panel.get("targets", ()):
            yield (
                panel["title"],
                target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".+").replace("$node", ".+"),
            )
