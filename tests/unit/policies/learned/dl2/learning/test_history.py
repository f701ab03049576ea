"""The log of the history: bounded, refuses what is unknown, and survives crashes, damage and full disks."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import TrainingError
from policies.learned.dl2.learning import history as history_module
from policies.learned.dl2.learning.history import FORMAT, History, HistoryLimits, read_history
from policies.learned.dl2.learning.record import LONGEST_LINE, JobRecord, few_sizes
from tests.unit.policies.learned.dl2.learning.examples import BEGUN_S, RECORD, records
from tests.unit.policies.processes import ROOT

NOW_S = BEGUN_S + 1e5
LIMITS = HistoryLimits(jobs=10, age_s=1e6)


def opened(path: Path, limits: HistoryLimits = LIMITS) -> History:
    found = History(path, limits)
    found.open(NOW_S)
    return found


def line_of(**values: object) -> bytes:
    """A line with a good checksum and those values in place of the example's."""
    table = json.loads(RECORD.to_line()[9:])
    text = json.dumps({**table, **values}).encode()
    return b"%08x %s\n" % (crc32(text), text)


def test_jobs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.log"
    assert opened(path).append(records(3)) == 3
    assert read_history(path) == (records(3), 0)
    again = opened(path)
    assert (again.jobs, again.size, again.newest_s) == (3, path.stat().st_size, records(3)[-1].finish_time_s)
    assert read_history(tmp_path / "none") == ([], 0)


def test_an_outcome_that_is_reported_twice_is_recorded_once(tmp_path: Path) -> None:
    path = tmp_path / "history.log"
    assert opened(path).append([RECORD]) == 1
    assert opened(path).append([RECORD]) == 0
    # a job that was requeued counts with its last end
    later = replace(RECORD, finish_time_s=RECORD.finish_time_s + 100, service_s=900.0, sizes=((1, 900.0),))
    assert opened(path).append([later]) == 1
    assert read_history(path)[0] == [later]


def test_size_and_age_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "history.log"
    history = opened(path)
    for record in records(40):
        history.append([record])
        history.shorten(NOW_S)
        assert history.jobs <= 1.25 * LIMITS.jobs + 1
        assert history.size == path.stat().st_size
    assert read_history(path)[0][-LIMITS.jobs :] == records(40)[-LIMITS.jobs :]
    # old jobs go when the file is opened
    assert History(path, HistoryLimits(10, 1.0)).jobs == 0
    short = History(path, HistoryLimits(10, NOW_S - records(40)[-2].finish_time_s))
    short.open(NOW_S)
    assert read_history(path)[0] == records(40)[-2:]


@pytest.mark.parametrize("cut", [1, 8, 9, 50, len(RECORD.to_line()) - 1])
def test_an_incomplete_line_at_the_end_is_removed(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "history.log"
    opened(path).append(records(3))
    whole = path.read_bytes()
    path.write_bytes(whole + RECORD.to_line()[:cut])
    history = opened(path)
    assert (history.jobs, history.refused) == (3, 1)
    assert path.read_bytes() == whole
    history.append([RECORD])
    assert read_history(path) == ([*records(3), RECORD], 0)


@pytest.mark.parametrize("begin", [b"", FORMAT[:5]])
def test_a_file_that_was_cut_in_its_first_line_begins_anew(tmp_path: Path, begin: bytes) -> None:
    path = tmp_path / "history.log"
    path.write_bytes(begin)
    opened(path).append([RECORD])
    assert read_history(path) == ([RECORD], 0)


def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.log"
    path.write_bytes(b"headway-dl2-history 9\n")
    with pytest.raises(TrainingError, match=r"begins with .* move it away"):
        opened(path)
    assert path.read_bytes() == b"headway-dl2-history 9\n"


def test_a_file_of_the_version_before_is_continued_in_the_present_one(tmp_path: Path) -> None:
    path = tmp_path / "history.log"
    lines = []
    for record in records(3):  # they had no shares
        text = json.dumps({key: value for key, value in asdict(record).items() if key != "shares"}).encode()
        lines.append(b"%08x %s\n" % (crc32(text), text))
    for content in ([], lines):
        path.write_bytes(FORMAT.replace(b" 2", b" 1") + b"".join(content))
        history = opened(path)
        assert (history.jobs, history.refused) == (len(content), 0)
        assert path.read_bytes().startswith(FORMAT)
    history.append([RECORD])
    assert read_history(path) == ([*records(3), RECORD], 0)


def test_a_file_that_was_cut_by_another_program_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "history.log"
    history = opened(path)
    history.append(records(3))
    path.unlink()
    history.append([RECORD])
    assert (read_history(path), history.jobs) == (([RECORD], 0), 1)
    # jobs that the file no longer has are recorded again when they are reported again
    assert history.append(records(3)) == 3
    assert read_history(path)[0] == [RECORD, *records(3)]


@pytest.mark.parametrize("in_place", [True, False])
def test_jobs_that_another_program_has_left_in_the_file_are_kept(tmp_path: Path, in_place: bool) -> None:
    path = tmp_path / "history.log"
    history = opened(path)
    history.append(records(3))
    # given that another program removes jobs, adds one, and writes half a line, in the same file or in one that replaces it
    kept, other = records(3)[1:2], replace(RECORD, job_id="other")
    if not in_place:
        path.unlink()
    path.write_bytes(FORMAT + b"".join(record.to_line() for record in (*kept, other)) + other.to_line()[:50])
    # when the next job ends, then the file has the jobs of both, and complete lines
    assert history.append([RECORD]) == 1
    assert (read_history(path), history.jobs) == (([*kept, other, RECORD], 0), 3)
    assert history.append(records(1)) == 1
    # also if the other file is longer than this one was
    path.unlink()
    path.write_bytes(FORMAT + b"".join(record.to_line() for record in records(9)))
    assert history.append([RECORD]) == 1
    assert (read_history(path)[0], history.size) == ([*records(9), RECORD], path.stat().st_size)


def test_a_file_of_another_version_is_not_overwritten_by_the_next_job(tmp_path: Path) -> None:
    path = tmp_path / "history.log"
    history = opened(path)
    history.append(records(3))
    path.write_bytes(b"headway-dl2-history 9\n")
    with pytest.raises(TrainingError, match="move it away"):
        history.append([RECORD])
    assert path.read_bytes() == b"headway-dl2-history 9\n"


def test_a_file_of_many_bytes_is_seldom_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = len(RECORD.to_line())
    monkeypatch.setattr(history_module, "MOST_BYTES", 40 * line)
    path = tmp_path / "history.log"
    history = opened(path, HistoryLimits(1000, 1e9))
    files = []
    for number, record in enumerate(records(120)):
        history.append([record])
        history.shorten(NOW_S)
        files.append(path.stat().st_ino)
        assert read_history(path)[0] == records(number + 1)[-history.jobs :]
    assert sum(one != other for one, other in pairwise(files)) <= 12


@settings(max_examples=60)
@given(damage=st.lists(st.tuples(st.integers(len(FORMAT), 1200), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_bytes_cost_their_lines_alone(tmp_path_factory: Any, damage: list[tuple[int, int]]) -> None:
    path = tmp_path_factory.mktemp("damage") / "history.log"
    opened(path).append(records(5))
    content = bytearray(path.read_bytes())
    hurt = set()
    for at, value in damage:
        if at < len(content) and content[at] != value:
            content[at] = value
            hurt.add(content[:at].count(b"\n"))
    path.write_bytes(bytes(content))
    found = read_history(path)[0]
    assert set(found) <= set(records(5))
    assert len(found) >= 5 - 2 * len(damage)
    opened(path)
    assert read_history(path) == (found, 0)


def test_of_an_enormous_file_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MOST_BYTES", 2000)
    path = tmp_path / "history.log"
    path.write_bytes(FORMAT + b"x" * 1_000_000 + b"\n" + b"".join(record.to_line() for record in records(3)))
    history = opened(path)
    assert history.jobs == 3
    assert path.stat().st_size < 2000


@pytest.mark.parametrize(
    "values",
    [
        {"job_id": ""},
        {"job_id": "a\nb"},
        {"job_id": "x" * 65},
        {"submit_time_s": -1.0},
        {"submit_time_s": 1e300},
        {"finish_time_s": 10**400},
        {"service_s": -(10**400)},
        {"epochs": 10**400},
        {"batch_size": 10**400},
        {"finish_time_s": BEGUN_S - 1},
        {"num_gpus": 0},
        {"num_gpus": 1 << 40},
        {"num_gpus": True},
        {"num_gpus": 2.0},
        {"min_gpus": 3},
        {"max_gpus": 1},
        {"epochs": -1.0},
        {"epochs": 1e12},
        {"service_s": 1e6},
        {"service_s": 0.0},
        {"batch_size": 0},
        {"sizes": []},
        {"sizes": [[1, 800.0]] * 65},
        {"sizes": [[0, 800.0]]},
        {"sizes": [[1, 100.0]]},
        {"sizes": [[1, 10**400]]},
        {"sizes": [[10**400, 800.0]]},
        {"sizes": 5},
        {"sizes": [[1]]},
        {"model": None},
        {"final_state": 7},
        {"unknown": 1},
        {"model": "m" * LONGEST_LINE},
    ],
)
def test_values_that_no_job_has_are_refused(values: dict[str, object]) -> None:
    assert JobRecord.from_line(line_of()) == RECORD
    with pytest.raises(TrainingError):
        JobRecord.from_line(line_of(**values))


@pytest.mark.parametrize("text", [b"NaN", b"[1]", b"{}", b"[" * 3000, b'{"a": Infinity}', b"\xff"])
def test_what_is_no_record_is_refused(text: bytes) -> None:
    with pytest.raises(TrainingError):
        JobRecord.from_line(b"%08x %s\n" % (crc32(text), text))


@given(st.dictionaries(st.integers(1, 1000), st.floats(0, 1e6), max_size=200))
def test_many_sizes_become_few_and_keep_their_seconds(seconds: dict[int, float]) -> None:
    sizes = few_sizes(seconds)
    assert len(sizes) <= 64
    assert sum(spent for _, spent in sizes) == pytest.approx(sum(seconds.values()))
    assert [gpus for gpus, _ in sizes] == sorted({gpus for gpus, _ in sizes})


FULL = """
import resource, sys
from pathlib import Path
from tests.unit.policies.learned.dl2.learning.test_history import LIMITS, full_disk
full_disk(Path(sys.argv[1]))
"""


def full_disk(path: Path) -> None:
    """Append until a limit on the size of files, which ends writes in the middle as a full disk does; in a process of its own."""
    history = History(path, HistoryLimits(1000, 1e9))
    history.open(NOW_S)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    kept = 0
    failed = 0
    for record in records(6):
        try:
            kept += history.append([record])
        except OSError:
            failed += 1
        assert path.stat().st_size == history.size
    assert kept
    assert failed
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert history.append([RECORD]) == 1
    assert read_history(path) == ([*records(kept), RECORD], 0)


def test_a_full_disk_leaves_complete_lines(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FULL, str(tmp_path / "history.log")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
