"""docs/architecture.md names every folder, each folder says what it holds, and the glossary has each word once."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
FOLDERS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if not path.is_relative_to(ROOT / "protos/headway")  # generated
)


def section(package: str) -> str:
    """Return the part of architecture.md about one package, or about all of them where it has no part of its own."""
    text = (ROOT / "docs/architecture.md").read_text()
    folders = text[text.index("\n## Folders") : text.index("\n## Promises")]
    found = re.search(rf"^### {package or 'all'}$(.*?)(?=^### |\Z)", folders, re.MULTILINE | re.DOTALL)
    return found[1] if found else folders


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_in_architecture(folder: str) -> None:
    package, _, rest = folder.partition("/")
    name = rf"(?<![\w-]){rest.rpartition('/')[2]}/[`\]]" if rest else rf"\b{package}\b"

    assert re.search(name, section(package if rest else "")), f"docs/architecture.md says nothing of {folder}/"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_says_what_it_holds(folder: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""

    assert re.match(r"\S.*[.:]", text, re.DOTALL), (
        f"{folder}/__init__.py has no docstring that says what the folder holds"
    )


def test_every_folder_of_tests_is_in_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    table = text[text.index("\n## Tests") :]
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}

    assert sorted(name for name in folders if f"| `tests/{name}` |" not in table) == []


def test_folders_are_found() -> None:
    assert {"controller/cycle", "controller/slurm/embedded/ctld", "policies/learned/sched2"} <= set(FOLDERS)
    assert "cycle/" in section("controller") and "cycle/" not in section("simulator")


def test_each_word_of_the_glossary_has_one_entry() -> None:
    text = (ROOT / "docs/glossary.md").read_text()
    entries = text[: text.index("\n## Words with one use only")]
    rows = re.findall(r"^\| ([^|]+) \|", entries, re.MULTILINE)
    words = [word.strip().casefold() for row in rows for word in row.split(",") if word.strip() not in {"word", "---"}]

    assert len(words) > 60
    assert sorted({word for word in words if words.count(word) > 1}) == []
