"""Awaits of controller and node agent at which no scripted run has seen a task wait, so that no cut comes there.

`python -m tests.cancellation.unreached` prints them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.cancellation.many import RUNS

ROOT = Path(__file__).parents[2]
_PACKAGES = ("controller", "nodeagent")
_ELSEWHERE = ("controller/cli/", "controller/web/", "controller/slurm/embedded/")
"""Commands and the page, which are programs of their own, and the emulated Slurm."""


def unreached(seen: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the lines of those awaits, by file. `seen`: file and line of the functions that were seen waiting."""
    lines = set(seen)
    found: defaultdict[str, list[int]] = defaultdict(list)
    for path, first, last in _awaits():
        if not any((path, line) in lines for line in range(first, last + 1)):
            found[path].append(first)
    return dict(found)


def seen_in_all_runs() -> set[tuple[str, int]]:
    """Play each run, and return file and line of the functions that were seen waiting."""
    return {line for run in RUNS.values() for line in run().lines}


def number_of_awaits() -> int:
    """Return the number of lines on which an await begins."""
    return len({(path, first) for path, first, _ in _awaits()})


def _awaits() -> Iterator[tuple[str, int, int]]:
    """Yield file, first and last line of each await."""
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(_ELSEWHERE):
                continue
            ends = {}
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Await):
                    ends[node.lineno] = node.end_lineno or node.lineno
                elif isinstance(node, ast.AsyncFor) or (isinstance(node, ast.AsyncWith) and not _is_timeout(node)):
                    ends[node.lineno] = node.lineno
            yield from ((name, first, last) for first, last in sorted(ends.items()))


def _is_timeout(node: ast.AsyncWith) -> bool:
    """Return whether a block only limits the time: to enter and to leave it never waits."""
    return all(ast.unparse(item.context_expr).startswith("asyncio.timeout") for item in node.items)


if __name__ == "__main__":
    of_files = unreached(seen_in_all_runs())
    for path, lines in of_files.items():
        print(f"{path}: {len(lines)} (lines {', '.join(map(str, lines))})")
    print(f"{sum(map(len, of_files.values()))} of {number_of_awaits()} lines with an await")
