"""The tour of the README: what its commands print on a cluster is what the README shows, but for times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import skip_unless_possible, unique_name

ROOT = Path(__file__).parents[3]
_MASKS = (
    (r"\d\d:\d\d(:\d\d)?", "TIME"),
    (r"starts in .*", "ESTIMATE"),
    (r"It is expected to start .*?\)\.", "ESTIMATE"),
    (r"\d+ ?(ms|min|m|s|h)\b", "DURATION"),
    (r"^Starts: .*", "HELD"),
    (r"(?<=^decisions )\d+, \d+(?= by the fallback)", "COUNT, COUNT"),  # on a busy machine a decision may come too late
    (r"tour|test-\d+-\d+", "NAME"),
)
"""Patterns of text that differs from run to run, and the word for each."""


def parts(text: str) -> list[tuple[str, list[str]]]:
    """Return each command with the lines of its output, masked; a paragraph is one line, and so is a wrapped value."""
    found = []
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        if command.startswith("headway why"):
            paragraph, mark, rest = output.partition("\n…" if "\n…" in output else "\n\n")
            output = paragraph.replace("\n", " ") + mark + rest
        whole = re.sub(r"\n {8,}", "", output)
        found.append((command, [line for line in map(masked, whole.splitlines()) if line]))
    return found


def masked(line: str) -> str:
    """Return the line without what differs, and with single spaces."""
    line = " ".join(line.split())
    for pattern, word in _MASKS:
        line = re.sub(pattern, word, line)
    return line


def shown() -> str:
    """Return the tour as the README shows it."""
    (tour,) = re.findall(r"^```\n(\$ sbatch.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    return tour


def same(readme: list[str], printed: list[str]) -> bool:
    """Return whether the README shows these lines; after a line … it leaves out the rest."""
    if "…" in readme:
        kept = readme[: readme.index("…")]
        return printed[: len(kept)] == kept
    return printed == readme


def test_the_masks_leave_what_is_the_same_in_each_run() -> None:
    assert (
        masked("lease       renewed 17 s ago") == masked("lease       renewed 2 s ago") == "lease renewed DURATION ago"
    )
    assert masked("watchdog    checked 1 s ago") != masked("lease       renewed 1 s ago")
    assert same(["a", "…"], ["a", "b"]) and not same(["a", "…"], ["b", "b"]) and not same(["a"], ["a", "b"])


@pytest.mark.timeout(400)
def test_the_readme_shows_what_the_tour_prints() -> None:
    skip_unless_possible()
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TOUR_NAME": unique_name(),
    }  # fmt: skip
    done = subprocess.run(
        [ROOT / "examples/tour/tour.sh"], env=environment, capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stderr

    printed, readme = parts(done.stdout), parts(shown())

    assert [command for command, _ in printed] == [command for command, _ in readme]
    for (command, lines), (_, expected) in zip(printed, readme, strict=True):
        assert same(expected, lines), f"write the README's tour again: {command} prints\n" + "\n".join(lines)
