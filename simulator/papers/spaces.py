"""The table of the environments' spaces in docs/simulator.md, made from the environments.

`python -m simulator.papers.spaces` writes it, `python -m simulator.papers.spaces --check` fails when it is not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium

from simulator.envs import CONTENTION, ELASTIC, MARL, RL_TAPS, SCHED2
from simulator.envs.space_parts import HasParts, part_rows

TARGET = Path("docs/simulator.md")
_ROOT = Path(__file__).resolve().parents[2]
_BEGIN, _END = "<!-- spaces: made by python -m simulator.papers.spaces -->\n", "<!-- end of spaces -->\n"
_HEAD = ("environment", "part", "where", "shape", "range", "unit", "meaning")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the table. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m simulator.papers.spaces", description="Make the table of spaces.")
    parser.add_argument("--check", action="store_true", help="fail if the file is not up to date, and write nothing")
    given = parser.parse_args(arguments)
    path = _ROOT / TARGET
    text = path.read_text(encoding="utf-8")
    fresh = with_table(text)
    if fresh != text and given.check:
        sys.stderr.write(f"{TARGET}: not up to date; run `python -m simulator.papers.spaces` and commit\n")
        return 1
    if fresh != text:
        path.write_text(fresh, encoding="utf-8")
    return 0


def with_table(text: str) -> str:
    """Return the page with the table between its two comments. Raises ValueError if they are missing."""
    before, found, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not found or not end:
        raise ValueError(f"{TARGET}: the comments around the table are missing")
    return "".join((before, _BEGIN, "\n", *_lines(), "\n", _END, after))


def _lines() -> Iterator[str]:
    yield _line(_HEAD)
    yield _line(("---",) * len(_HEAD))
    for name in (CONTENTION, ELASTIC, MARL, RL_TAPS, SCHED2):
        env: Any = gymnasium.make(name).unwrapped
        seen, _ = env.reset(seed=0)
        described = cast("HasParts", env)
        shown = f"`{name}`"
        for part, where, *more in part_rows(described, seen):
            yield _line((shown, part, f"`{where}`", *more))
            shown = ""
        yield _line(("", "actions", "", f"`{_space(env.action_space)}`", "", "", described.actions_text()))
        env.close()


def _space(space: Any) -> str:
    """Return an action space in a few characters."""
    repeated = re.fullmatch(r"MultiDiscrete\(\[(\d+)(?:\s+\1)*\]\)", " ".join(str(space).split()))
    return f"MultiDiscrete([{repeated[1]}] * {len(space.nvec)})" if repeated else str(space)


def _line(cells: Sequence[str]) -> str:
    return "|".join(("", *(f" {cell} " if cell else " " for cell in cells), "\n"))


if __name__ == "__main__":
    sys.exit(main())
