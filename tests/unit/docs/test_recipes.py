"""docs/recipes.md and examples/recipes say the same."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples/recipes"
PAGE = (ROOT / "docs/recipes.md").read_text()
SCRIPTS = sorted(FOLDER.glob("*.sh"))
_PIECE = re.compile(
    r"\]\(\.\./examples/recipes/(?P<file>[\w.]+)\)|^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


def quoted() -> list[tuple[str, str]]:
    """Each block of code that has a language, with the file that was linked last before it."""
    found, file = [], ""
    for piece in _PIECE.finditer(PAGE):
        file = piece["file"] or file
        if piece["text"]:
            found.append((file, piece["text"]))
    return found


@pytest.mark.parametrize(("file", "text"), quoted())
def test_every_block_stands_in_its_file(file: str, text: str) -> None:
    assert text in (FOLDER / file).read_text()


def test_every_file_is_mentioned() -> None:
    quoted_files = {file for file, _ in quoted()}

    assert len(quoted()) >= 15
    assert {path.name for path in SCRIPTS} <= quoted_files
    for path in FOLDER.glob("*.py"):
        others = [other.read_text() for other in FOLDER.glob("*.*") if other.is_file() and other != path]
        assert path.name in quoted_files or path.name in " ".join(others), path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_batch_script_has_what_the_page_asks_for(path: Path) -> None:
    text = path.read_text()

    options = " ".join(re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)).split()
    assert {"--requeue", "--open-mode=append", "--comment=headway=preemptible"} <= set(options)
    assert re.search(r"^trap '.*' USR1$", text, re.MULTILINE)
    assert all((FOLDER / name).exists() for name in re.findall(r"\w+\.py", text))
    subprocess.run(["bash", "-n", path], check=True, timeout=60)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_every_program_can_be_read(path: Path) -> None:
    ast.parse(path.read_text())


def test_torch_is_the_one_that_all_tests_use() -> None:
    wanted = (FOLDER / "requirements.txt").read_text().split()

    assert {word for word in wanted if word.startswith("torch==")} <= set(
        (ROOT / "constraints.txt").read_text().split()
    )
    assert any(word.startswith("torch==") for word in wanted)
