"""The commit of a checkout, as git says it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from policies.learned.weights.source_commit import commit_of


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "policies").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "headway-scheduler"\n')
    (folder / "policies" / "card.py").touch()
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_of_a_branch(checkout: Path, packed: bool) -> None:
    if packed:
        git(checkout, "pack-refs", "--all")
    assert commit_of(checkout / "policies" / "card.py") == git(checkout, "rev-parse", "HEAD")


def test_the_commit_of_a_worktree_and_that_of_no_branch(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "two")
    of_other = git(tmp_path / "other", "rev-parse", "HEAD")
    assert commit_of(tmp_path / "other" / "policies" / "card.py") == of_other != git(checkout, "rev-parse", "HEAD")
    git(checkout, "checkout", "-q", "--detach", of_other)
    assert commit_of(checkout / "policies" / "card.py") == of_other


def test_an_environment_inside_of_another_repository_has_no_commit(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pyproject.toml").write_text('[project]\nname = "thesis"\n')
    assert commit_of(checkout / "policies" / "card.py") == ""
    assert commit_of(tmp_path / "card.py") == ""
    git(tmp_path, "init", "-q")
    assert commit_of(tmp_path / "card.py") == ""
