"""Commands of the documents, copied by program: what an operator would copy, in the same order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"^```(\w*)\s*$")
_HEADING = re.compile(r"^#+\s+(.*?)\s*$")
_MARK = "::headway-step"


def blocks(markdown: str, heading: str) -> list[list[str]]:
    """Return the commands of each shell block below a heading, up to the next heading. Raises LookupError without any.

    A command is a line that is not empty and no comment; a line that ends with a backslash goes on in the next.
    """
    found: list[list[str]] = []
    inside, language = False, ""
    below = False
    for line in markdown.splitlines():
        if fence := _FENCE.match(line):
            inside, language = not inside, fence[1]
            if inside and below and language == "sh":
                found.append([])
        elif inside:
            if below and language == "sh":
                found[-1].append(line)
        elif title := _HEADING.match(line):
            below = title[1] == heading
    if not found:
        raise LookupError(f"no shell commands below the heading {heading!r}")
    return [list(_commands(lines)) for lines in found]


def _commands(lines: Sequence[str]) -> Iterator[str]:
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()


@dataclass(frozen=True, slots=True)
class Step:
    """One command that was run."""

    command: str
    status: int
    output: str


def script(commands: Sequence[str]) -> str:
    """Return a program for bash that runs the commands one after another in one shell, and marks the end of each.

    They share the current folder, as on an operator's terminal. All run, also after a failure.
    """
    lines = [f"eval {shlex.quote(command)} 2>&1; printf '\\n{_MARK} %s\\n' $?" for command in commands]
    return "\n".join(lines) + "\n"


def steps(commands: Sequence[str], output: str) -> list[Step]:
    """Return what the program of `script` did, from its output; fewer steps than commands if it was cut off."""
    found = []
    gathered: list[str] = []
    for line in output.splitlines():
        if line.startswith(_MARK):
            found.append(Step(commands[len(found)], int(line.split()[1]), "\n".join(gathered).strip()))
            gathered = []
        else:
            gathered.append(line)
    return found
