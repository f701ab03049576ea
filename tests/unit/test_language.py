"""The language of docstrings: complete first lines, and personal pronouns only for people (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "controller",
    "nodeagent",
    "policies",
    "simulator",
    "slurm",
    "headway_job",
    "headway_client",
    "tests",
    "docs/site",
)
GENERATED = re.compile(r"_pb2(_grpc)?\.py$")

FRAGMENT = re.compile(r"(Of|By|That|What|Whether|Who|Whom|Whoever|Whatever)\b")
"""First words of a fragment, such as "Of the newest run." instead of "Time of the newest run."."""

PERSON = (
    r"(?:users?|operators?|administrators?|admins?|people|persons?|somebody|someone|anybody|anyone|everybody|everyone|"
    r"readers?|authors?|developers?|researchers?|owners?|groups?|members?|root|SlurmUser)"
)
ABOUT_PEOPLE = re.compile(rf"\b{PERSON}\b[^.;]{{0,12}}?\b(?:who|whom)\b", re.IGNORECASE)
PRONOUN = re.compile(r"\b(?:who|whom|whoever|whomever|nobody|no one)\b", re.IGNORECASE)

ALLOWED: dict[str, str] = {
    # "controller/admin/service.py: Answer nobody": "nobody is a user here",
}
"""Exceptions: the path and the beginning of the docstring's line, with the reason. An entry that no docstring needs is an error."""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring: of modules, classes and functions, and the strings below fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        has_fields = isinstance(node, ast.Module | ast.ClassDef)
        for at, statement in enumerate(body):
            is_text = (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            )
            documents = at == 0 or (has_fields and isinstance(body[at - 1], ast.Assign | ast.AnnAssign))
            if is_text and documents:
                yield statement.lineno, statement.value.value.strip()


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line of a docstring that breaks a rule."""
    lines = text.splitlines()
    if lines and FRAGMENT.match(lines[0]):
        yield 0, lines[0]
    rest = ABOUT_PEOPLE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for at, line in enumerate(rest.splitlines()):
        if PRONOUN.search(line):
            yield at, lines[min(at, len(lines) - 1)].strip()


def modules() -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in paths if not GENERATED.search(path.name))


@cache
def found() -> dict[str, str]:
    """Every fault, by path and text: where it is."""
    every: dict[str, str] = {}
    for path in modules():
        name = path.relative_to(ROOT).as_posix()
        for line, text in docstrings(ast.parse(path.read_text())):
            for at, fault in faults(text):
                every[f"{name}: {fault}"] = f"{name}:{line + at}: {fault}"
    return every


def test_docstrings_are_plain_english() -> None:
    wrong = {key: where for key, where in found().items() if not any(key.startswith(allowed) for allowed in ALLOWED)}

    assert not wrong, "\n" + "\n".join(wrong.values())


def test_every_exception_is_needed() -> None:
    every = found()

    assert [allowed for allowed in ALLOWED if not any(key.startswith(allowed) for key in every)] == []


@pytest.mark.parametrize(
    ("text", "is_fault"),
    [
        ("Of the newest run.", True),
        ("By what share a round must be better.", True),
        ("Whether it is held.", True),
        ("Return whether the job is held.", False),
        ("The job who waits.", True),
        ("Left to nobody.", True),
        ("Refuse users who may not ask.", False),
        ("Offset of the newest run.", False),
        ("Bytes by kind.", False),
        ("Nodes of a job.\n\nThe users, who wait, are people. The nodes who wait are not.", True),
    ],
)
def test_faults_are_found(text: str, is_fault: bool) -> None:
    assert bool(list(faults(text))) is is_fault


def test_docstrings_of_fields_are_read() -> None:
    fields = 'class A:\n    """Two."""\n    x: int\n    """Three."""\n'
    methods = '    def f(self):\n        """Four."""\n        y = 1\n        "not one"\n'
    tree = ast.parse(f'"""One."""\n{fields}{methods}')

    assert [text for _, text in docstrings(tree)] == ["One.", "Two.", "Three.", "Four."]
