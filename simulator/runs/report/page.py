"""The page of a comparison: data, style and code in one file that needs no network."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.errors import SettingError
from simulator.kernel import kernel_text
from simulator.results.table import best, shown, text_of
from simulator.runs.report.data import of_trace
from simulator.runs.scenario import Scenario

SCRIPTS = ("base.js", "lines.js", "heat.js", "gantt.js", "page.js")
STYLE = "report.css"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<main id="page"><noscript>This page draws with JavaScript. The same figures are in summary.json.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>
(() => {{
"use strict";
{script}
}})();
</script>
</body>
</html>
"""


def write_page(path: Path, scenario: Scenario, runs: Sequence[Mapping[str, object]], command: str) -> None:
    """Write the comparison of these runs (see `report.data`), which have the jobs of the scenario.

    Raises SettingError when it cannot be written.
    """
    data = {
        "command": command,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": versions(),
        "cluster": scenario.options.cluster,
        "gpus": scenario.cluster.num_gpus,
        "trace": of_trace(scenario.trace, scenario.cluster.names, scenario.cluster.gpus),
        "dropped": scenario.dropped,
        "table": table(runs),
        "runs": runs,
    }
    try:
        path.write_text(page(f"Headway: {scenario.trace.name} on {scenario.options.cluster}", data), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{path}: cannot be written ({error.strerror}); give another --out") from error


def page(title: str, data: Mapping[str, object]) -> str:
    """Return the page of that data."""
    assets = files(__package__) / "assets"
    script = "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    # In a script element only "</" could end the data, and JSON may write it as "<\/".
    embedded = (
        json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    )
    style = (assets / STYLE).read_text(encoding="utf-8")
    return _PAGE.format(title=escape(title), style=style, data=embedded, script=script)


def table(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return every figure as text, and which runs are best."""
    figures = [run["figures"] for run in runs]
    return [
        {
            "key": row.key,
            "label": row.label,
            "better": row.better,
            "values": (values := [each.get(row.key) for each in figures]),
            "texts": [text_of(row, value) for value in values],
            "best": sorted(best(row, values)),
        }
        for row in shown(figures)
    ]


def versions() -> dict[str, str]:
    """Return the versions behind a result, by name."""
    found = {"Python": platform.python_version(), "kernel": kernel_text()}
    for name, package in (("Headway", "headway-scheduler"), ("numpy", "numpy")):
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = "not installed"
    return {"Headway": found.pop("Headway"), **found, "system": f"{platform.system()} {platform.machine()}"}
