"""The first docstring of each folder says what the folder imports, and nothing that it does not import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOTS = {
    package: ROOT
    / ("headway_job/src" if package == "headway_job" else "headway_client/src" if package == "headway_client" else "")
    for package in (
        "controller",
        "nodeagent",
        "policies",
        "protos",
        "simulator",
        "slurm",
        "headway_job",
        "headway_client",
    )
}


@cache
def modules() -> dict[str, Path]:
    """Return every module of ours that is not generated, by its dotted name."""
    found = {}
    for package, folder in ROOTS.items():
        for path in (folder / package).rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if path.name == "__init__.py" else parts)] = path
    return {name: path for name, path in found.items() if not name.startswith("protos.headway.v1.")}


@cache
def imported(name: str) -> tuple[str, ...]:
    """Return the modules of ours that a module names in its imports, those inside functions too."""
    return tuple(_imported(name))


def _imported(name: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]
            source = resolve_name("." * node.level + (node.module or ""), package)
            below = [f"{source}.{alias.name}" for alias in node.names]
            names = [each if each in modules() else source for each in below]
        else:
            continue
        yield from (each for each in names if each.split(".")[0] in ROOTS)


def as_said(folder: str, module: str) -> str:
    """Return how a folder names a module elsewhere: another package by its name, else as far as the path is not its own."""
    mine, theirs = folder.split("."), module.split(".")
    if mine[0] != theirs[0]:
        return theirs[0]
    shared = next(n for n, (a, b) in enumerate(zip([*mine, ""], [*theirs, ""], strict=False)) if a != b)
    return "/".join(theirs[1 : shared + 1]) or theirs[0]


def expected(folder: str) -> set[str]:
    """Return what the folder, with the folders in it, imports from elsewhere, as its docstring should name it."""
    inside = [name for name in modules() if f"{name}.".startswith(f"{folder}.")]
    outside = {each for name in inside for each in imported(name) if not f"{each}.".startswith(f"{folder}.")}
    return {as_said(folder, each) for each in outside}


FOLDERS = sorted(name for name, path in modules().items() if path.name == "__init__.py")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_what_it_imports(folder: str) -> None:
    text = ast.get_docstring(ast.parse(modules()[folder].read_text())) or ""
    sentence = re.search(r"\bImports (.*?)\.(?=\s|$)", text, re.DOTALL)
    said = set(re.findall(r"`([^`]+)`", sentence[1])) if sentence else set()

    assert said == expected(folder), f"write 'Imports {', '.join(f'`{name}`' for name in sorted(expected(folder)))}.'"


def test_the_rule_sees_imports() -> None:
    assert {"base", "slurm/client", "slurm/hostlist", "slurm/model", "slurm/records"} == expected(
        "controller.slurm.updates"
    )
    assert "nodeagent" in expected("controller.agents")
    assert "preempt/reports" in expected("controller.preempt.attempts")
    assert expected("headway_client") == set()
    assert len(FOLDERS) > 100
