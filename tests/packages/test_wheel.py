"""The wheels of `make wheel`: installed in an environment with nothing else, away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("headway", "headway-controller", "headway-policy", "headway-setup", "headway-sim", "headway-web")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def run(folder: Path, *words: str | Path) -> str:
    """Return what a command prints, without the checkout on Python's path."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MAKEFLAGS"}}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheels_install_in_an_empty_environment(tmp_path: Path) -> None:
    wheels, empty = tmp_path / "wheels", tmp_path / "venv"
    # `setup` is done: these tests run in the environment that it makes.
    run(REPOSITORY, "make", "--old-file=setup", "wheel", f"VENV={sys.prefix}", f"WHEELS={wheels}")
    headway, client, _ = (next(wheels.glob(f"headway_{name}-*.whl")) for name in ("scheduler", "client", "job"))

    venv.create(empty, with_pip=True)
    pip = (empty / "bin/python", "-m", "pip", "install", "--quiet", "-c", REPOSITORY / "constraints.txt")
    run(tmp_path, *pip, client, f"headway-scheduler[controller,web] @ {headway.as_uri()}")

    for program in PROGRAMS:
        assert run(tmp_path, empty / "bin" / program, "--help")
    assert "srtf" in run(tmp_path, empty / "bin/headway-policy", "list")
    # The files that are not Python: of Slurm, of systemd, and the templates of the page.
    assert (empty / "share/headway/systemd/headway-controller.service").is_file()
    assert "templates/queue.html" in run(tmp_path, pip[0], "-c", _PAGE)


_PAGE = "import controller.web; from pathlib import Path; print(*Path(controller.web.__path__[0]).rglob('*.html'))"
