"""docs/architecture.md names every folder, each folder says what it holds, their order is a contract, the tests have the
folders of the code, and the glossary has each word once."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
PACKAGES = LINTER["root_packages"]
FOLDERS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if not path.is_relative_to(ROOT / "protos/headway")  # generated
)

HELPERS = {
    "controller/examples",
    "controller/worlds",
    "nodeagent/telemetry/fake_nvml",
    "policies/learned/examples",
    "policies/states",
}
"""Folders of tests/unit with what tests are made of."""


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


def test_the_order_inside_every_folder_of_folders_is_a_contract() -> None:
    ordered = {
        name.replace(".", "/")
        for contract in LINTER["contracts"]
        if contract["type"] == "layers" and contract.get("exhaustive")
        for name in contract["containers"]
    }
    # headway_job and headway_client are src layouts; slurm/plugin has no Python that runs
    parents = {re.sub(r"^(headway_\w+)/src/headway_\w+", r"\1", folder.rpartition("/")[0]) for folder in FOLDERS}
    nested = parents - {"", "headway_job", "headway_job/src", "headway_client", "headway_client/src", "slurm/plugin"}

    assert sorted(nested - ordered) == []


def test_every_folder_of_unit_tests_is_a_folder_of_the_code() -> None:
    unit = ROOT / "tests/unit"
    folders = {path.parent.relative_to(unit).as_posix() for path in unit.rglob("__init__.py")} - {"."}
    code = {re.sub(r"^(headway_\w+)/src/", "", folder) for folder in FOLDERS} | {"docs", "docs/monitoring", "systemd"}

    assert sorted(folders - code - HELPERS) == []
    assert folders >= HELPERS


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
