"""Output of the commands: tables with colours on a terminal, plain lines elsewhere.

Other users write the names of jobs and the reasons of policies: no control sequence and no markup in them reaches the terminal.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from controller.base.text import clock_time, short_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NARROW = 110
"""Width of a terminal, in columns, below which tables leave out columns and shorten times."""
_PLAIN_WIDTH = 10_000
_RIGHT = frozenset({"GPUS", "NODES", "WAIT", "STEPS/S", "WINDOWS", "JOBS"})
"""Columns of numbers."""


def open_console() -> Console:
    """Return standard output as a console, with colours only on a terminal."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may contain letters that this terminal cannot show
    if sys.stdout.isatty():
        return Console(file=sys.stdout, highlight=False)
    return Console(file=sys.stdout, highlight=False, no_color=True, force_terminal=False, width=_PLAIN_WIDTH)


def put(console: Console, *things: Table | Text) -> None:
    """Print the things; without trailing spaces when the output is not a terminal."""
    if console.is_terminal:
        console.print(*things, sep="\n")
        return
    with console.capture() as captured:
        console.print(*things, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def is_narrow(console: Console) -> bool:
    """Return True on a terminal of less than `NARROW` columns; never for a file or a pipe, which have all columns."""
    return console.is_terminal and console.width < NARROW


def time_text(console: Console, time_s: float) -> str:
    """Return a local time for a table: short on a terminal, with date and time elsewhere."""
    return short_time(time_s, time.time()) if console.is_terminal else clock_time(time_s)


def table_of(*columns: str, whole: Container[str] = ()) -> Table:
    """Return an empty table with that heading; texts of the columns `whole` stay on one line, others may have more."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column in _RIGHT else "left"
        table.add_column(column, justify=side, overflow="fold", no_wrap=column in whole)
    return table


def table_of_lines(*columns: str, widths: Mapping[str, int]) -> Table:
    """Return an empty table in which each row is one line of a terminal: `widths` are the maxima of columns, the last column
    gets the space that is left, and what is longer is cut."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), expand=True)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in _RIGHT else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=widths.get(column),
            ratio=1 if column == columns[-1] else None,
        )
    return table


def pairs_of(lines: Iterable[tuple[str, str]], colours: Mapping[str, str]) -> Table:
    """Return a table of names and values, one pair per line; `colours` by name."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(safe_text(name), safe_text(value, colours.get(name, "")))
    return table


def safe_text(value: str, colour: str = "") -> Text:
    """Return text without control characters and without markup."""
    from rich.text import Text

    return Text("".join(sign if sign.isprintable() else "?" for sign in value), style=colour)


def show_rest(console: Console, left: int) -> None:
    """Print the number of lines that were not shown, if any."""
    if left:
        put(console, safe_text(f"{left} more; --limit 0 shows all"))
