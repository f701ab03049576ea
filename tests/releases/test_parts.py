"""Parts that need no root: reading of apt's settings, documents and reports, and the order of the parts."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from tests.parity.__main__ import chosen
from tests.parity.case import OTHER, USER
from tests.releases import installation
from tests.releases.checkout import copy_checkout
from tests.releases.container import Container, Done
from tests.releases.documents import Step, blocks, script, steps
from tests.releases.mirror import named_mirror
from tests.releases.release import PARTS, Result, with_needed
from tests.releases.report import as_json, status, table
from tests.releases.root import REPOSITORY, cache_folder
from tests.releases.suites import PARITY, TESTS, USERS, open_folders, prepare, python_mounts, verdict


def test_the_mirror_is_that_of_debian_itself() -> None:
    targets = (
        "Debian-Security main http://mirror.example/debian-security/\n"
        ". main https://deb.nodesource.com/node_20.x/\n"
        "Debian contrib http://mirror.example/more/\n"
        "Debian main http://mirror.example/debian/\n"
    )
    assert named_mirror(targets) == "http://mirror.example/debian"
    assert named_mirror("Ubuntu main http://archive.example/ubuntu/\n") is None


def test_commands_are_those_below_the_heading() -> None:
    first = "## A\n```sh\nother\n```\n## B\n```\nno shell\n```\n"
    text = f"{first}```sh\n# comment\ncd x &&\\\n  ls # why\n\nlast\n```\n### C\n```sh\nno\n```\n"
    assert blocks(text, "B") == [["cd x &&  ls # why", "last"]]
    with pytest.raises(LookupError, match="'D'"):
        blocks(text, "D")


def test_commands_share_a_shell_and_each_has_its_status(tmp_path: Path) -> None:
    commands = ["cd / && pwd", "echo 'it''s' && false  # comment", "pwd", "exit 3", "pwd"]
    done = subprocess.run(["bash", "-c", script(commands)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert steps(commands, done.stdout) == [
        Step(commands[0], 0, "/"),
        Step(commands[1], 1, "its"),
        Step(commands[2], 0, "/"),
    ]


@pytest.mark.parametrize(
    ("command", "status", "allowed"),
    [
        ("headway-setup slurm --check          # shows", 1, True),
        ("headway-setup slurm --check", 2, False),
        ("headway-setup slurm --apply && systemctl restart slurmctld", 1, False),
        ("headway doctor", 1, False),
        ("headway-setup slurm --undo           # shows", 1, True),
        ("headway-setup slurm --undo --apply   # removes", 1, True),
        ("headway-setup slurm --undo --apply && systemctl restart slurmctld", 1, False),
    ],
)
def test_only_a_check_and_an_undo_may_say_that_something_is_left(command: str, status: int, allowed: bool) -> None:
    assert installation.may_fail(Step(command, status, "")) is allowed


class Machine:
    """Stands in for a container: remembers each command, and does as if all of a script's steps had succeeded."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def bash(self, text: str, **_: object) -> Done:
        """Remember the command, and answer as the site of a user whose jobs complete."""
        self.commands.append(text)
        if "%A|%T|%S" in text:
            return Done(0, "5|RUNNING|2026-01-01T00:00:00\n")
        if "sbatch" in text:
            return Done(0, "JobState=COMPLETED\n")
        return Done(0, "\n::headway-step 0\n" * text.count("::headway-step"))


def test_an_undo_cancels_no_job_right_after_the_restart_of_slurmctld() -> None:
    """22.05 counts GPUs of such jobs as used for ever, also without Headway."""
    machine = Machine()

    installation.undo(cast(Container, machine), REPOSITORY)

    commands = machine.commands
    restarted = next(at for at, text in enumerate(commands) if "systemctl restart slurmctld" in text)
    registered = next(at for at, text in enumerate(commands) if "SlurmdStartTime=None" in text)
    cancels = [at for at, text in enumerate(commands) if text.startswith("scancel")]
    assert restarted < registered < cancels[0]
    assert len(cancels) == 2
    for at in cancels:
        assert commands[at - 1].startswith("sleep "), "jobs run for a while before they are cancelled"


def test_the_documents_have_the_commands_of_each_part() -> None:
    assert blocks((REPOSITORY / "README.md").read_text(), "Install on a cluster")[0][-1].split()[:2] == [
        "/opt/headway/bin/headway",
        "doctor",
    ]
    operations = (REPOSITORY / "docs" / "operations.md").read_text()
    assert any("pip install" in command for command in blocks(operations, "Upgrading")[0])
    assert sum("--undo" in command for command in blocks(operations, "Uninstalling")[1]) == 3
    assert any("rm -rf /opt/headway" in command for command in blocks(operations, "Uninstalling")[2])


def test_parts_bring_those_that_they_need_in_order() -> None:
    assert with_needed(["parity", "undo"]) == ("install", "undo", "parity")
    assert with_needed(["spank"]) == ("spank",)
    assert with_needed(PARTS) == PARTS


def test_suites_are_files_of_the_repository() -> None:
    assert all((REPOSITORY / file).is_file() for files in TESTS.values() for file in files)


def test_users_of_the_tests_have_a_shell() -> None:
    """Slurm 26.05 holds their jobs with --export=NONE otherwise: such a job's environment comes from a login."""
    machine = Machine()

    prepare(cast(Container, machine))

    assert {USER, OTHER} <= set(USERS)
    assert all(f"usermod --shell /bin/sh {user}" in machine.commands[0] for user in USERS)


@pytest.mark.parametrize("subject", PARITY)
def test_subjects_of_the_parity_suite_have_cases(subject: str) -> None:
    assert chosen([subject])


def test_the_report_of_pytest_counts() -> None:
    cases = {
        "a": "<testcase name='a'/>",
        "b": "<testcase name='b'><failure message='AssertionError: x&#10;more'/></testcase>",
        "c": "<testcase name='c'><skipped/></testcase>",
        "d": "<testcase name='d'><error message='fixture'/></testcase>",
    }

    def of(names: str) -> str:
        return f"<testsuites><testsuite>{''.join(cases[name] for name in names)}</testsuite></testsuites>"

    failed = verdict(of("abcd"))
    assert (failed.verdict, failed.detail) == ("failed", "1 passed, 2 failed, 1 skipped")
    assert failed.failures == ("b: AssertionError: x", "d: fixture")
    assert [verdict(of(names)).verdict for names in ("a", "ac", "c", "")] == ["ok", "ok", "skipped", "failed"]


def test_one_failure_is_the_exit_status() -> None:
    good = Result("22.05", "install", "ok", "10 commands", 1.26)
    skipped = Result("22.05", "spank", "skipped", "", 0.0)
    bad = Result("26.05", "undo", "failed", "why", 2.0, ("a: b",))
    assert (status([good, skipped]), status([good, bad])) == (0, 1)
    assert as_json([bad]) == [
        {
            "release": "26.05",
            "part": "undo",
            "result": "failed",
            "detail": "why",
            "failures": ["a: b"],
            "duration_s": 2.0,
        }
    ]


def test_the_table_shows_the_first_failures_of_many() -> None:
    shown = Console(width=120, file=io.StringIO())
    shown.print(table([Result("26.05", "contract", "failed", "9 failed", 1.0, tuple(f"case{n}" for n in range(9)))]))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "case4" in text
    assert "case5" not in text
    assert "and 4 more" in text


def test_roots_are_in_the_folder_that_is_named() -> None:
    named = {"HEADWAY_RELEASES": "/r", "XDG_CACHE_HOME": "/x", "HOME": "/h"}
    assert cache_folder(named) == Path("/r")
    assert cache_folder({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/headway/releases")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/headway/releases")


def test_users_can_enter_the_folders_above_the_mounted_python(tmp_path: Path) -> None:
    mounts = python_mounts()
    (tmp_path / mounts[0].target.parts[1]).mkdir(mode=0o700)
    open_folders(tmp_path, mounts)
    for mount in mounts:
        folder = tmp_path / mount.target.parent.relative_to("/")
        while folder != tmp_path:
            assert folder.stat().st_mode & 0o011 == 0o011
            folder = folder.parent


def test_the_copy_is_as_a_clone(tmp_path: Path) -> None:
    copy_checkout(tmp_path / "copy")
    assert (tmp_path / "copy" / "tests" / "releases" / "site" / "setup.sh").is_file()
    assert not list((tmp_path / "copy").rglob("*.so"))
    assert not (tmp_path / "copy" / ".venv").exists()
