"""Every code block of the documents parses."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Callable

import pytest
import yaml

from tests.unit.docs.test_docs import Page, pages


def _check_python(text: str) -> None:
    text = textwrap.dedent(text)
    if text.rstrip().endswith(":"):
        text = f"{text.rstrip()} ..."  # the head of a loop, whose body the text describes
    compile(text, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _check_shell(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise SyntaxError(done.stderr)


_CHECKS: dict[str, Callable[[str], object]] = {
    "python": _check_python,
    "sh": _check_shell,
    "bash": _check_shell,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
_OTHER_LANGUAGES = {"text"}


@pages
def test_every_code_block_parses(page: Page) -> None:
    languages = set(re.findall(r"^```+(\w+)", page.text, re.MULTILINE))
    assert languages <= {*_CHECKS, *_OTHER_LANGUAGES}
    for language in languages & _CHECKS.keys():
        for block in page.blocks(language):
            _CHECKS[language](block)


@pytest.mark.parametrize(
    ("language", "text"),
    [("python", "def f(:"), ("sh", "if true; then"), ("json", "{"), ("toml", "a ="), ("yaml", "a: [")],
)
def test_a_code_block_that_does_not_parse_is_found(language: str, text: str) -> None:
    with pytest.raises((SyntaxError, ValueError, yaml.YAMLError)):
        _CHECKS[language](text)
