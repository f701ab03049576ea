"""Each program imports only what its own extra installs: the documents install the controller without the agent's packages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROGRAMS = {
    "controller": (
        "controller.daemon.assemble",
        "controller.daemon.cli",
        "controller.cli.app",
        "policies.serving.server",
    ),
    "agent": ("nodeagent.run", "nodeagent.cli"),
}
"""Extra → modules that its programs import."""
_NOT_NEEDED = {"greenlet", "grpcio-tools", "headway-client", "headway-job", "headway-scheduler", "setuptools"}
"""Ours, and what libraries import only where it is installed."""
_IMPORTED = """
import sys
before = set(sys.modules)
import {}
print(*{{name.partition(".")[0] for name in set(sys.modules) - before}})
"""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r";.*\bextra\b")


def normal(name: str) -> str:
    """Return the name of a distribution in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the distributions that these requirements install, with those that they need."""
    found: set[str] = set()
    left = list(requirements)
    while left:
        requirement = left.pop()
        match = _NAME.match(requirement)
        assert match is not None, requirement
        name = normal(match[0])
        if name in found:
            continue
        found.add(name)
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # one for other versions of Python
            continue
        left += [each for each in needed if not _EXTRA.search(each)]
    return found


@pytest.mark.parametrize("extra", PROGRAMS)
def test_programs_import_only_what_their_extra_installs(extra: str) -> None:
    words = [sys.executable, "-c", _IMPORTED.format(", ".join(PROGRAMS[extra]))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    distributions = metadata.packages_distributions()
    imported = {normal(name) for module in done.stdout.split() for name in distributions.get(module, ())}
    installed = closure([*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]])
    assert imported - installed - _NOT_NEEDED == set()
