"""The lines that headway-minicluster prints after a boot."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

from slurm.cli.up import _exports


def test_the_lines_for_a_shell_also_have_the_column_of_squeue_that_says_who_holds_a_job() -> None:
    lines = _exports(SimpleNamespace(environment={"HEADWAY_CONFIG": "/c.toml"}))  # type: ignore[arg-type]
    script = "\n".join([*lines, "echo $HEADWAY_CONFIG; echo $SQUEUE_FORMAT2"])
    found = subprocess.run(
        ("bash", "--norc", "-i"),
        input=script,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout

    assert "/c.toml" in found
    assert "admin_comment" in found
