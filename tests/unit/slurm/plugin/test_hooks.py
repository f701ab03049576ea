"""The scripts that slurmctld and slurmd run, under the machine's own sh."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controller.base.lease import Lease, wake_room, write_lease
from controller.slurm.configuration import installed_files

SHIPPED = Path(__file__).parents[4] / "slurm" / "plugin"
HOOKS = SHIPPED / "hooks"


def test_every_shipped_script_carries_the_version_that_doctor_looks_for() -> None:
    for name in ("job_submit.lua", f"hooks/{installed_files.EVENT_HOOK}", f"hooks/{installed_files.TASK_PROLOG}"):
        assert installed_files.script_version((SHIPPED / name).read_text()) == installed_files.VERSION, name
    loaded = re.findall(r"headway_job_submit = \{ version = (\d+)", (SHIPPED / "job_submit.lua").read_text())
    assert loaded == [str(installed_files.VERSION)]


@pytest.mark.parametrize("name", [installed_files.EVENT_HOOK, installed_files.TASK_PROLOG])
def test_hooks_are_executable(name: str) -> None:
    assert os.access(HOOKS / name, os.X_OK)


# --- start and end of jobs


class Slurmctld:
    """Runs the event hook as slurmctld does, for a runtime folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.runtime_dir = folder
        self.script = folder / installed_files.EVENT_HOOK
        text = (HOOKS / installed_files.EVENT_HOOK).read_text()
        self.script.write_text(installed_files.with_runtime_dir(text, folder))
        self.script.chmod(0o755)

    def beat(self, age_s: float = 0) -> None:
        lease = Lease(int(time.time() - age_s), 30, ("dl",), 0, 65536)
        write_lease(self.runtime_dir / "lease", lease)

    def run(self, context: str = "epilog_slurmctld", **job: str) -> int:
        environment = {"PATH": os.environ["PATH"], "SLURM_SCRIPT_CONTEXT": context, "SLURM_JOB_ID": "12", **job}
        return subprocess.run([str(self.script)], env=environment, timeout=60, check=False).returncode


@pytest.fixture
def slurmctld(tmp_path: Path) -> Slurmctld:
    slurmctld = Slurmctld(tmp_path)
    slurmctld.beat()
    return slurmctld


@pytest.fixture
def pipe(slurmctld: Slurmctld) -> Iterator[int]:
    path = slurmctld.runtime_dir / "wake-hooks"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def read(pipe: int) -> str:
    try:
        return os.read(pipe, 65536).decode()
    except BlockingIOError:
        return ""


@pytest.mark.parametrize(
    ("context", "job", "line"),
    [
        ("prolog_slurmctld", {}, "start 12\n"),
        ("epilog_slurmctld", {}, "end 12\n"),
        ("epilog_slurmctld", {"SLURM_ARRAY_JOB_ID": "11", "SLURM_ARRAY_TASK_ID": "4"}, "end 11_4\n"),
    ],
)
def test_the_controller_is_woken(
    slurmctld: Slurmctld, pipe: int, context: str, job: Mapping[str, str], line: str
) -> None:
    assert slurmctld.run(context, **job) == 0
    assert read(pipe) == line


def test_slurm_that_does_not_tell_the_context_is_understood_by_the_scripts_name(
    slurmctld: Slurmctld, pipe: int
) -> None:
    slurmctld.script = slurmctld.script.rename(slurmctld.runtime_dir / "epilog.sh")

    assert slurmctld.run(context="") == 0
    assert read(pipe) == "end 12\n"


@pytest.mark.parametrize("age_s", [60, -60])
def test_a_controller_that_is_away_is_not_woken(slurmctld: Slurmctld, pipe: int, age_s: float) -> None:
    slurmctld.beat(age_s=age_s)

    assert slurmctld.run() == 0
    assert read(pipe) == ""


def test_a_broken_lease_is_no_lease(slurmctld: Slurmctld, pipe: int) -> None:
    (slurmctld.runtime_dir / "lease").write_text("time=$(reboot)\nstale_after=x; rm -rf /\n")

    assert slurmctld.run() == 0
    assert read(pipe) == ""


def test_a_full_pipe_does_not_hold_slurmctld_up(slurmctld: Slurmctld, pipe: int) -> None:
    for size in (4096, 1):
        try:
            while True:
                os.write(pipe, b"x" * size)
        except BlockingIOError:
            pass

    assert slurmctld.run() == 0


def test_hooks_leave_the_room_that_job_submit_lua_counts_on(slurmctld: Slurmctld, pipe: int) -> None:
    os.mkfifo(slurmctld.runtime_dir / "wake")
    lua = os.open(slurmctld.runtime_dir / "wake", os.O_RDWR | os.O_NONBLOCK)
    room = wake_room(lua)

    assert slurmctld.run() == 0

    assert (read(pipe), wake_room(lua)) == ("end 12\n", room)
    os.close(lua)


def test_a_pipe_that_is_not_read_does_not_either(slurmctld: Slurmctld) -> None:
    os.mkfifo(slurmctld.runtime_dir / "wake-hooks")

    assert slurmctld.run() == 0


def test_nothing_is_made_where_nothing_was(slurmctld: Slurmctld) -> None:
    assert slurmctld.run() == 0
    assert not (slurmctld.runtime_dir / "wake-hooks").exists()
