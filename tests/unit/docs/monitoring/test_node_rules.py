"""Alert rules and dashboard of nodes: they parse, they name what agents write, and each alert fires when it should."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
import typer.main
import yaml

from controller.cli.app import app
from nodeagent.metrics.node_families import node_families
from tests.unit.docs.monitoring.exported import ALERTS, FOLDER, NODE_ALERTS, NODES, alerts, dashboard, panel_queries
from tests.unit.docs.monitoring.test_rules import COLUMNS, needs_promtool, overlap, promtool
from tests.unit.nodeagent.metrics.test_textfile import REPORT

CASES = Path(__file__).with_name("node_alerts_test.yaml")
_METRIC = re.compile(r"\bheadway_\w+")


def queries() -> list[str]:
    """Every expression of alerts and dashboard."""
    return [str(rule["expr"]) for rule in alerts(NODE_ALERTS).values()] + [query for _, query in panel_queries(NODES)]


@needs_promtool
def test_the_rules_are_valid() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", NODE_ALERTS)


@needs_promtool
def test_each_alert_fires_in_its_case_and_in_no_other() -> None:
    promtool("test", "rules", CASES)


@needs_promtool
def test_every_expression_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    promtool("check", "rules", path)


def test_each_alert_has_a_case_that_it_fires_in_and_there_is_one_without_any() -> None:
    wanted = [
        test["exp_samples"] for case in yaml.safe_load(CASES.read_text())["tests"] for test in case["promql_expr_test"]
    ]
    fired = {
        name for samples in wanted for each in samples for name in re.findall(r'alertname="(\w+)"', each["labels"])
    }

    assert fired == alerts(NODE_ALERTS).keys()
    assert [] in wanted


def test_alerts_and_dashboard_name_what_agents_write() -> None:
    written = {family.name for family in node_families(REPORT)}

    assert {name for query in queries() for name in _METRIC.findall(query)} - written == set()


@pytest.mark.parametrize("name", alerts(NODE_ALERTS))
def test_every_alert_says_what_is_the_case_and_what_to_do(name: str) -> None:
    rule = alerts(NODE_ALERTS)[name]

    assert name.startswith("Headway") and name not in alerts(ALERTS)
    assert set(rule["annotations"]) == {"summary", "description"}
    assert "$labels.node" in rule["annotations"]["summary"]
    named = re.findall(r"(?<![/\w])headway ([a-z]+)", rule["annotations"]["description"])
    assert set(named) <= set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    operations = (FOLDER.parent / "operations.md").read_text()
    assert f"| `{name}` | {rule['labels']['severity']} |" in operations


def test_the_dashboard_has_the_form_that_grafana_imports() -> None:
    board = dashboard(NODES)
    panels = board["panels"]

    assert (board["uid"], "id" in board) == (NODES.stem, False)
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "node"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), f"{one['title']}, {other['title']}"
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS
        for target in panel.get("targets", ()):
            assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
            assert len(_METRIC.findall(target["expr"])) == target["expr"].count("$node")
