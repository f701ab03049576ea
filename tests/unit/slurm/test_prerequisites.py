"""Each missing prerequisite is reported with what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurm import prerequisites


def test_the_command_says_what_it_found_and_never_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert prerequisites.main([]) == 0
    assert "real" in capsys.readouterr().err


def test_every_reason_is_a_sentence_with_its_mend() -> None:
    for reason in prerequisites.missing():
        assert any(mend in reason for mend in ("run it with", "install", "start it with", "needs Linux"))


def test_a_user_namespace_has_capabilities_that_are_not_enough() -> None:
    inside = ("unshare", "--user", "--map-root-user", "--net", "--mount")
    if subprocess.run((*inside, "true"), stderr=subprocess.DEVNULL, check=False, timeout=60).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    ask = "from slurm.prerequisites import missing; print('\\n'.join(missing()))"
    done = subprocess.run((*inside, sys.executable, "-c", ask), capture_output=True, text=True, check=True, timeout=60)
    assert "root cannot make device files here (Operation not permitted)" in done.stdout


def test_accounting_and_the_plugin_need_what_a_plain_cluster_does_and_more() -> None:
    for more in ({"accounting": True}, {"spank": True}):
        assert set(prerequisites.missing()) <= set(prerequisites.missing(**more))


def test_without_headers_or_a_compiler_the_plugin_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")

    assert any("no C compiler" in reason for reason in prerequisites.missing(spank=True))
    assert not any("no C compiler" in reason for reason in prerequisites.missing())


def test_a_checkout_that_other_users_cannot_enter_is_noticed(tmp_path: Path) -> None:
    assert prerequisites.closed_folder(Path("/usr/bin/env")) is None
    home = tmp_path / "home"
    (home / "checkout").mkdir(parents=True)
    home.chmod(0o700)
    closed = prerequisites.closed_folder(home / "checkout" / "file")
    assert closed is not None
    assert closed in (home, *home.parents)
