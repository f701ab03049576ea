"""The cases themselves, and what is read from Slurm about them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from slurm.processes import children
from tests.parity.__main__ import chosen, main
from tests.parity.case import Case, Do, Job, Until
from tests.parity.cases import ALL, SUBJECTS
from tests.parity.cases.known import KNOWN
from tests.parity.cases.times import TRAP
from tests.parity.play.records import parse
from tests.parity.play.scripts import Written, batch_script
from tests.parity.play.side import Side
from tests.parity.world import PARTITIONS, UNMANAGED, WORLDS, Lot

LIMITS = Path(__file__).parents[2] / "docs" / "operations.md"


class BusyHeadway:
    """A Headway whose commands take too long."""

    def headway(self, *words: str, check: bool) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(words, 60.0)


def test_on_a_busy_machine_an_explanation_that_takes_too_long_is_missing() -> None:
    side = Side(cast(Any, None), WORLDS["main"], cast(Any, None), cast(Any, BusyHeadway()), accounting=False)
    assert side.why_of("7") == ""


def test_there_are_enough_cases_and_each_has_a_name_of_its_own() -> None:
    assert len(ALL) >= 150
    assert [name for name, number in Counter(case.name for case in ALL).items() if number > 1] == []
    assert all(re.fullmatch(r"[a-z0-9-]+", case.name) for case in ALL)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_cases_can_be_typed(subject: str) -> None:
    for case in SUBJECTS[subject]:
        can_be_typed(case)


def can_be_typed(case: Case) -> None:
    """Check that every word of the case can be filled in."""
    world = WORLDS[case.world]
    labels = [job.label for job in case.jobs()]
    assert len(set(labels)) == len(labels)
    names = {**Lot(1, world).names, **dict.fromkeys(labels, "10001")}
    for step in case.steps:
        match step:
            case Job():
                assert shlex.split(step.options.format_map(names)) is not None
                batch_script(step)
            case Do():
                assert shlex.split(step.words.format_map(names))
            case Until():
                assert step.label.partition("_")[0] in labels
    for words in case.undo:
        assert shlex.split(words.format_map(names))


def test_known_limits_are_in_the_documents_and_their_cases_exist() -> None:
    limits = " ".join(LIMITS.read_text().split())
    assert [limit.words for limit in KNOWN if limit.words not in limits] == []
    names = [name for limit in KNOWN for name in limit.cases]
    assert set(names) <= {case.name for case in ALL}
    assert len(set(names)) == len(names)
    assert all(limit.aspects for limit in KNOWN)


def test_a_signal_to_a_whole_step_leaves_only_the_words_of_its_trap() -> None:
    with subprocess.Popen(
        ("bash", "-c", f"echo ready; {TRAP}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as step:
        assert step.stdout is not None
        assert step.stdout.readline() == "ready\n"
        while not children(step.pid):
            time.sleep(0.01)
        time.sleep(0.1)  # until the child has become `sleep`
        os.killpg(step.pid, signal.SIGUSR1)
        assert step.stdout.read() == "got USR1\n"
        assert step.wait() == 0


def test_another_release_is_refused_with_the_command_that_plays_on_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.parity.__main__.missing", lambda: ())
    monkeypatch.setattr("tests.parity.__main__.machine", lambda: {"slurm": "slurm-wlm 22.05.8"})

    assert main(["--release", "26.05"]) == 2
    assert "python -m tests.releases --release 26.05 --only parity" in capsys.readouterr().err


def test_cases_are_chosen_by_their_names_and_subjects() -> None:
    assert chosen(None) == list(ALL)
    assert [case.name for case in chosen(["mem-all"])] == ["mem-all"]
    assert chosen(["Features"]) == list(SUBJECTS["Features"])
    assert main(["--only", "no-such-case"]) == 2


def test_a_lot_takes_its_own_names_out_of_texts() -> None:
    lot = Lot(2, WORLDS["main"])
    assert lot.names["n1"] == "n7"
    assert lot.neutral("gpu2 on n[7-8] and n9, cpu2, n10, gpu12") == "gpu on n1,n2 and n3, cpu, n10, gpu12"


def test_headway_manages_every_partition_but_one() -> None:
    world = WORLDS["main"]
    assert len(world.managed()) == world.lots * (len(PARTITIONS) - 1)
    assert not any(name.startswith(UNMANAGED) for name in world.managed())
    assert "PreemptType=preempt/qos" not in world.spec_fields(accounting=False)["extra_conf"]


RECORDS = """JobId=10 JobName=a JobState=RUNNING Restarts=1 EndTime=Unknown TRES=cpu=4,gres/gpu=6
JobId=11 ArrayJobId=11 ArrayTaskId=0-1,4%2 JobName=b JobState=PENDING Reason=Resources
JobId=13 HetJobId=12 HetJobOffset=1 JobName=c JobState=FAILED EndTime=2026-01-02T03:04:05
"""


def test_records_of_arrays_and_heterogeneous_jobs_have_parts() -> None:
    lines = RECORDS.replace("Restarts=1", "Nodes=n[1,3] CPU_IDs=0 Mem=1 GRES=gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:4)")
    records = list(parse(lines))
    assert [(each.root_id, each.part) for each in records] == [
        ("10", ""),
        ("11", "_0"),
        ("11", "_1"),
        ("11", "_4"),
        ("12", "+1"),
    ]
    assert records[0].gpus == {"n1": 3, "n3": 3}
    assert records[0].end_s is None
    assert records[4].has_ended
    assert records[4].end_s is not None


def test_files_of_a_run_that_began_after_the_record_was_read_are_not_of_it(tmp_path: Path) -> None:
    (tmp_path / "10.0.batch").write_text("SLURM_NTASKS=2\0")
    (tmp_path / "10.1.batch").write_text("SLURM_NTASKS=2\0SLURM_RESTART_COUNT=1\0")
    shown = "JobId=10 JobName=low JobState={} Restarts=1 NodeList="
    for state, runs in (("PENDING", 1), ("RUNNING", 2)):
        [record] = parse(shown.format(state))
        assert record.begun_runs == runs
        assert ("SLURM_RESTART_COUNT" in Written(tmp_path).environment("10", record.begun_runs)) is (runs == 2)


def test_files_of_jobs_are_read_by_run(tmp_path: Path) -> None:
    files = {
        "10.0.begun": "100.5\n",
        "10.1.begun": "300.5\n",
        "10.1.batch": "SLURM_NTASKS=2\0HOME=/\0CUDA_VISIBLE_DEVICES=0\0",
        "10.1.task.1": "SLURM_PROCID=1\0",
        "10.1.task.0": "SLURM_PROCID=0\0",
        "10.out": "text\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    written = Written(tmp_path)
    assert written.first_begin_s("10") == 100.5
    assert written.environment("10", 2) == {"SLURM_NTASKS": "2", "CUDA_VISIBLE_DEVICES": "0"}
    assert [task["SLURM_PROCID"] for task in written.tasks("10", 2)] == ["0", "1"]
    assert written.output("10") == "text\n"
    assert (written.first_begin_s("11"), written.tasks("11", 1), written.output("11")) == (None, (), "")
