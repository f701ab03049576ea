"""The results of an experiment as JSON, as tables on a terminal, and as one page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from policies.learned.evaluation.statistics import Mean
from simulator.errors import SettingError
from simulator.reproducing.experiment import ClaimFinding, ExperimentResults
from simulator.reproducing.pictures import Picture, svg
from simulator.runs.report.page import STYLE, versions

_HOUR_S = 3600.0
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
table {{ border-collapse: collapse; font-size: 13px; }}
th, td {{ padding: 3px 12px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; }}
.card {{ margin-bottom: 14px; overflow-x: auto; }}
.pictures {{ display: flex; flex-wrap: wrap; gap: 14px; }}
.pictures svg {{ background: #fff; border-radius: 8px; max-width: 100%; height: auto; }}
.yes {{ color: var(--good); }} .no {{ color: var(--hot); }}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def as_json(results: ExperimentResults) -> str:
    """Return one JSON object: `claims`, `table`, `details` if the experiment has any, and the versions and seeds behind them."""
    found: dict[str, object] = {
        "system": results.experiment.name,
        "seeds": list(results.seeds),
        "versions": versions(),
        "notes": list(results.experiment.notes),
        "claims": [finding.as_json() for finding in results.findings()],
        "table": results.rows(),
    }
    if results.experiment.details:
        found["details"] = dict(results.experiment.details)
    return json.dumps(found, indent=1, allow_nan=False)


def print_results(results: ExperimentResults) -> None:
    """Print the results as tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    for name, says, metrics in _tables(results):
        table = Table(title=f"[bold]{name}[/bold]: {says}", title_justify="left", box=None)
        head, *rows = _table(results, name, metrics)
        for place, word in enumerate(head):
            table.add_column(word, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table, "")
    head, *rows = _claims(results.findings())
    table = Table(*head, title="[bold]Claims[/bold]", title_justify="left", box=None)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in results.experiment.notes:
        console.print(f"[dim]{note}[/dim]")


def write_page(path: Path, results: ExperimentResults, pictures: Sequence[Picture], command: str) -> None:
    """Write tables and pictures into one file that needs no network. Raises SettingError if it cannot be written."""
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    parts = [
        f"<header><div class='words'><h1>{escape(results.experiment.name)}</h1>",
        f"<p class='lead'>{escape(results.experiment.says)}. Means over {len(results.seeds)} seeds with 95 % intervals.</p>",
        f"<p class='note'><code>{escape(command)}</code><br>{escape(made)}</p></div></header>",
        *(f"<p class='note'>{escape(note)}</p>" for note in results.experiment.notes),
        f"<section class='card'><h2>Claims</h2>{_html(_claims(results.findings()))}</section>",
        f"<section class='pictures'>{''.join(svg(each, results) for each in pictures)}</section>",
    ]
    for name, says, metrics in _tables(results):
        words = f"<h2>{escape(name)}</h2><p class='note'>{escape(says)}</p>"
        parts.append(f"<section class='card'>{words}{_html(_table(results, name, metrics))}</section>")
    style = (files("simulator.runs.report") / "assets" / STYLE).read_text(encoding="utf-8")
    text = _PAGE.format(
        title=escape(f"Headway: {results.experiment.name} reproduced"), style=style, body="\n".join(parts)
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{path}: cannot be written ({error.strerror}); give another --out") from error


def _tables(results: ExperimentResults) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield setting, description and metrics of every table, those of one setting after each other."""
    experiment = results.experiment
    for setting in experiment.settings:
        yield setting.name, setting.says, setting.metrics or experiment.metrics
        yield from (
            (table.setting, table.says, table.metrics)
            for table in experiment.more_tables
            if table.setting == setting.name
        )


def _table(results: ExperimentResults, setting: str, shown: tuple[str, ...]) -> list[list[str]]:
    """Return the head and the rows of a table, in order of its first metric, best first."""
    measures = results.experiment.measures
    rows: list[tuple[float, list[str]]] = []
    for contender in results.experiment.contenders[setting]:
        means = [results.mean(setting, contender.name, metric) for metric in shown]
        first = means[0]
        sign = 1.0 if measures[shown[0]].lower else -1.0
        texts = [text(metric, mean) for metric, mean in zip(shown, means, strict=True)]
        rows.append(
            (sign * first.mean if first else sys.float_info.max, [contender.name, contender.kind.value, *texts])
        )
    rows.sort(key=lambda row: row[0])
    return [["policy", "", *(measures[metric].says + _unit(metric) for metric in shown)], *(row for _, row in rows)]


def _claims(findings: Sequence[ClaimFinding]) -> list[list[str]]:
    rows = [["claim", "against", "paper", "goal", "here", "holds"]]
    for found in findings:
        claim = found.claim
        of: Any = _factor if claim.factor else _share
        spread = "" if found.ours.ci95 is None else f" ± {of(found.ours.ci95, '')}"
        paper = "" if claim.paper is None else of(claim.paper)
        rows.append([claim.name, found.against, paper, of(claim.goal), of(found.ours.mean) + spread, as_word(found)])
    return rows


def as_word(found: ClaimFinding) -> str:
    """Return whether the claim holds, as tables show it: yes, its mean only, or no."""
    if found.holds:
        return "yes"
    return "its mean only" if found.mean_holds else "no"


def _share(value: float, sign: str = "+") -> str:
    return f"{100 * value:{sign}.1f} %"


def _factor(value: float, _sign: str = "") -> str:
    return f"{value:.2f}x"


def _unit(metric: str) -> str:
    return ", h" if metric.endswith("_s") else ""


def text(metric: str, mean: Mean | None) -> str:
    """Return a mean as text: hours for a metric in seconds, else the number."""
    if mean is None:
        return ""
    scale, digits = (_HOUR_S, 2) if metric.endswith("_s") else (1.0, 3)
    spread = "" if mean.ci95 is None else f" ± {mean.ci95 / scale:.{digits}f}"
    return f"{mean.mean / scale:.{digits}f}{spread}"


def _html(rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(words: str) -> str:
    kind = f" class='{words}'" if words in {"yes", "no"} else ""
    return f"<td{kind}>{escape(words)}</td>"
