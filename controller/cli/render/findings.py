"""Output of `headway doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from controller.base.text import count
from controller.cli.render.terminal import open_console, put, safe_text, table_of


def show_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Print the findings of `headway doctor` with their repairs."""
    console = open_console()
    colours = {"ok": "green", "warning": "yellow", "error": "bold red", "skipped": "bright_black"}
    table = table_of("", "CHECK", "FOUND", whole={"", "CHECK"})
    for finding in findings:
        level = str(finding["level"])
        cells = (
            safe_text(level, colours.get(level, "")),
            safe_text(str(finding["check"])),
            safe_text(str(finding["what"])),
        )
        table.add_row(*cells)
        if finding["mend"]:
            table.add_row("", "", safe_text(f"what to do: {finding['mend']}", "bold"))
    put(console, table)
    tally = Counter(str(finding["level"]) for finding in findings)
    numbers = (f"{tally['ok']} ok", count(tally["warning"], "warning"), count(tally["error"], "error"))
    put(console, safe_text(", ".join((*numbers, f"{tally['skipped']} skipped"))))
