"""Completions: each program prints its script, and bash completes commands and options with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from policies.serving.manual.completions import PLACES, script
from tests.unit.policies.serving.manual.test_pages import DECLARED

BIN = Path(sys.executable).parent
COMPLETED = {
    "headway": (("pre",), {"preempt", "preemptions"}),
    "headway-agent": (("run", "--con"), {"--config"}),
    "headway-controller": (("check",), {"check-config"}),
    "headway-minicluster": (("up", "--hea"), {"--headway"}),
    "headway-policy": (("ser",), {"serve"}),
    "headway-setup": (("slurm", "--und"), {"--undo"}),
    "headway-sim": (("trace", "con"), {"convert"}),
    "headway-web": (("to",), {"token"}),
}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ.get('PATH', '')}", **more}


@pytest.mark.parametrize("shell", PLACES)
@pytest.mark.parametrize("program", DECLARED)
def test_the_script_is_that_of_show_completion(program: str, shell: str) -> None:
    # Without this variable of typer the option takes no value, and looks for the shell among the parents of the process
    done = subprocess.run(
        [BIN / program, "--show-completion", shell], capture_output=True, text=True, check=True, timeout=60,
        env=environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
    )  # fmt: skip
    assert done.stdout == script(program, shell)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("program", DECLARED)
def test_bash_completes_commands_and_options(program: str, tmp_path: Path) -> None:
    path = tmp_path / program
    path.write_text(script(program, "bash"))
    words, wanted = COMPLETED[program]
    typed = " ".join((program, *words))
    # The name of the function first: called in a command substitution, it would lose its answer
    code = (
        f"source {path}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; "
        f'function=$(complete -p {program} | sed "s/.*-F \\([^ ]*\\).*/\\1/"); '
        f'"$function" {program}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, check=True, env=environment(), timeout=60
    )
    assert set(done.stdout.split()) == wanted, done.stderr
