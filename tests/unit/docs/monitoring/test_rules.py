"""Alert rules and dashboards: they parse, they name what the controller exports, and each alert fires when it should."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from prometheus_client.metrics_core import Metric

from controller.cli.app import app
from tests.unit.docs.monitoring.exported import ALERTS, DASHBOARDS, alerts, dashboard, exported, names, panel_queries

CASES = Path(__file__).with_name("alerts_test.yaml")
COLUMNS = 24
NOT_FROM_THE_START = {"code", "bound"}
"""Labels whose values the controller exports only when something happens."""

_METRIC = re.compile(r"\bheadway_\w+")
_SELECTOR = re.compile(r"\b(headway_\w+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)(?:=|!=|=~)"([^"]*)"')

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here: apt-get install prometheus"
)
dashboards = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)


def promtool(*argv: str | Path) -> None:
    done = subprocess.run(["promtool", *argv], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> list[str]:
    """Every expression of alerts and dashboards."""
    found = [str(rule["expr"]) for rule in alerts().values()]
    for path in DASHBOARDS:
        found += [expression for _, expression in panel_queries(path)]
        found += [each["expr"] for each in dashboard(path)["annotations"]["list"]]
        found += [each["definition"] for each in dashboard(path)["templating"]["list"] if "definition" in each]
    return found


# --- what promtool says


@needs_promtool
def test_the_rules_are_valid() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)


@needs_promtool
def test_each_alert_fires_in_its_case_and_in_no_other() -> None:
    promtool("test", "rules", CASES)


@needs_promtool
def test_every_expression_of_the_dashboards_is_valid(tmp_path: Path) -> None:
    found = [expression for path in DASHBOARDS for _, expression in panel_queries(path)]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(found)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    promtool("check", "rules", path)


def test_each_alert_has_a_case_that_it_fires_in_and_there_is_one_without_any() -> None:
    wanted = [
        test["exp_samples"] for case in yaml.safe_load(CASES.read_text())["tests"] for test in case["promql_expr_test"]
    ]
    fired = {re.findall(r'alertname="(\w+)"', sample["labels"])[0] for samples in wanted for sample in samples}

    assert fired == alerts().keys()
    assert [] in wanted


# --- what the controller exports


def samples(families: list[Metric]) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


async def test_alerts_and_dashboards_name_what_the_controller_exports(tmp_path: Path) -> None:
    # given every series of a controller at its start; of a histogram without labels that is bucket, count and sum too
    families = await exported(tmp_path)
    there = samples(families)
    histograms = {name for name in names(families) if f"{name}_bucket" in there} | {
        family.name for family in families if family.type == "histogram"
    }
    known = there.keys() | names(families) | {f"{name}_{end}" for name in histograms for end in ("bucket", "count")}
    # then there is no other name in a query
    assert {name for query in queries() for name in _METRIC.findall(query)} - known == set()
    # and no value of a label that a metric never has
    for query in queries():
        for metric, matchers in _SELECTOR.findall(query):
            for label, value in _MATCHER.findall(matchers):
                if label not in {"job", "instance", "le"} | NOT_FROM_THE_START:
                    assert value in {labels.get(label) for labels in there[metric]}, f"{metric}: {label}={value}"


async def test_every_metric_of_the_queue_and_of_health_is_on_a_dashboard(tmp_path: Path) -> None:
    shown = {re.sub(r"_(bucket|count)$", "", name) for query in queries() for name in _METRIC.findall(query)}
    left_out = {
        "headway_policy_weights_info", "headway_policy_weights_timestamp_seconds", "headway_policy_history_bytes",
        "headway_policy_outcomes_refused_total", "headway_policy_learning_last_attempt_timestamp_seconds",
        "headway_policy_outcomes_lost_total", "headway_policy_feedback_samples",
        "headway_policy_feedback_updates_total", "headway_policy_feedback_left_out_total",
        "headway_policy_learning_last_result", "headway_policy_learning_change", "headway_policy_learning_change_ci95",
    }  # fmt: skip

    assert names(await exported(tmp_path)) - shown == left_out


# --- what people read


@pytest.mark.parametrize("name", alerts())
def test_every_alert_says_what_is_the_case_and_what_to_do(name: str) -> None:
    rule = alerts()[name]

    assert name.startswith("Headway")
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    named = re.findall(r"(?<![/\w])headway ([a-z]+)", rule["annotations"]["description"])
    assert set(named) <= commands
    operations = (ALERTS.parents[1] / "operations.md").read_text()
    assert f"| `{name}` | {rule['labels']['severity']} |" in operations


# --- the form of a dashboard


@dashboards
def test_a_dashboard_has_the_form_that_grafana_imports(path: Path) -> None:
    board = dashboard(path)

    assert board["uid"] == path.stem
    assert {"title", "schemaVersion", "panels", "templating", "time", "tags"} <= board.keys()
    assert "id" not in board  # Grafana gives it one
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} == {"row", "stat", "timeseries"}
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), f"{one['title']}, {other['title']}"
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS
        if panel["type"] != "row":
            check_panel(panel)


@dashboards
def test_every_panel_is_under_the_row_that_is_before_it_in_the_file(path: Path) -> None:
    begun, end = {"y": 0}, 0
    for panel in dashboard(path)["panels"]:
        place = panel["gridPos"]
        if panel["type"] == "row":
            assert place["y"] >= end, panel["title"]
            begun = place
        assert place["y"] >= begun["y"], panel["title"]
        end = max(end, place["y"] + place["h"])


@dashboards
def test_a_difference_on_an_axis_that_begins_at_0_is_never_below_it(path: Path) -> None:
    for panel in dashboard(path)["panels"]:
        if panel.get("fieldConfig", {}).get("defaults", {}).get("min") == 0:
            for target in panel["targets"]:
                assert "- time()" not in target["expr"] or "> 0" in target["expr"], panel["title"]


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h"))
    )


def check_panel(panel: dict[str, Any]) -> None:
    """It has a title, a description and a unit, and reads the data source that the reader chooses."""
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    for part in (panel, *panel["targets"]):
        assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        bare = re.sub(r'instance=~"\$instance"', "", target["expr"])
        assert len(_METRIC.findall(bare)) == target["expr"].count("$instance") or "up{" in bare
        assert target["legendFormat"]
