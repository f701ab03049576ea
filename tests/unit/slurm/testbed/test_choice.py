"""Choices of `headway-minicluster up --headway`: those that work, and the errors of those that cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm.cli import app, packages
from slurm.errors import PrerequisiteError, SpecError
from slurm.minicluster.spec import ClusterSpec
from slurm.testbed.choice import Choice, layout_in, read_choice, with_headway, write_choice
from slurm.testbed.programs import InstallationError

Command = Callable[..., tuple[int, str]]


def test_the_plugin_and_the_hooks_are_files_of_the_cluster_that_use_its_runtime_folder() -> None:
    spec = with_headway(ClusterSpec(name="trial"), Choice("srtf"))

    assert spec.job_submit_lua == spec.home / "headway" / "job_submit.lua"
    assert spec.prolog_slurmctld == spec.epilog_slurmctld
    assert {spec.home / name for name in spec.added_files} == {
        spec.job_submit_lua, spec.prolog_slurmctld, spec.task_prolog,
    }  # fmt: skip
    assert f'"{spec.home}/headway/run"' in spec.added_files["headway/job_submit.lua"]


@pytest.mark.parametrize(
    ("policy", "fields", "message"),
    [
        ("srft", {}, "--headway srft: no policy is named 'srft'"),
        ("srtf:speed=3", {}, "--headway srtf:speed=3: "),
        ("srtf", {"job_submit_lua": Path(__file__)}, "--job-submit-lua .*leave out this option or --headway"),
        (
            "srtf",
            {"directory": Path("/srv") / ("x" * 90)},
            "--dir /srv/x*: the path is too long .*choose a shorter one",
        ),
    ],
)
def test_a_choice_that_cannot_work_names_the_option_and_the_mend(
    policy: str, fields: dict[str, Path], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        with_headway(ClusterSpec(name="trial", **fields), Choice(policy))  # type: ignore[arg-type]


def test_a_choice_is_kept_for_later_commands(tmp_path: Path) -> None:
    assert read_choice(tmp_path) is None
    layout_in(tmp_path).folder.mkdir()
    write_choice(tmp_path, Choice("las:levels=3", agents=True))
    assert read_choice(tmp_path) == Choice("las:levels=3", agents=True)
    (layout_in(tmp_path).folder / "choice.json").write_text('{"policy": ')
    with pytest.raises(InstallationError, match=r"choice\.json: .*take the cluster down and boot it again"):
        read_choice(tmp_path)


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_CONTROLLER", ("no_such_package",))
    with pytest.raises(
        PrerequisiteError, match=r"no_such_package; pip install 'headway-scheduler\[controller,agent\]'"
    ):
        packages.require_packages(agents=True)


def test_agents_need_headway(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("slurm.cli.app.end_on_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["headway-minicluster", "up", "--agents"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    assert "--headway" in capsys.readouterr().err
