"""The checks before a commit are those of `make check`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def hooks() -> list[dict[str, Any]]:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local", "hooks of another repository would be fetched from the internet"
    hooks: list[dict[str, Any]] = repository["hooks"]
    return hooks


def test_the_hooks_run_what_make_check_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    names = re.findall(r"^CHECKS := (.*)$", makefile, re.MULTILINE)[0].split()

    assert "check: $(CHECKS:%=check-%)" in makefile
    assert [(hook["id"], hook["entry"]) for hook in hooks()] == [(name, f"make check-{name}") for name in names]
    assert sorted(re.findall(r"^check-(\w+): setup\n\t\S", makefile, re.MULTILINE)) == sorted(names)


def test_the_hooks_check_the_whole_tree_with_what_is_installed() -> None:
    assert {(hook["language"], hook["pass_filenames"]) for hook in hooks()} == {("system", False)}
