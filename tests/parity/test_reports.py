"""The page and the record of a run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.parity.case import Limit, one, story
from tests.parity.judge.rules import judge
from tests.parity.judge.verdict import Judgement, Verdict
from tests.parity.outcome import CaseOutcome, CommandOutcome, JobOutcome
from tests.parity.report.page import page
from tests.parity.report.record import Origin, OtherOriginError, commit_here, read, write
from tests.parity.report.result import Result, Run
from tests.parity.report.table import summary, table

REFUSED = CaseOutcome({"job": JobOutcome(words="no such feature")})
WAITS = CaseOutcome(
    {"job": JobOutcome(state="PENDING", reason="Resources", why="Needs 1 GPU.")}, {"change": CommandOutcome(0, "done")}
)
WORSE, KNOWN = (
    one("worse", "-C 'a|b'"),
    one("known", "-C a", known=Limit("nobody | knows", ("submission", "job", "command"))),
)
RESULTS = (
    Result("Subject", WORSE, judge(WORSE, REFUSED, WAITS), REFUSED, WAITS),
    Result("Subject", KNOWN, judge(KNOWN, REFUSED, WAITS), REFUSED, WAITS),
    Result("Another", one("equal", ""), judge(one("equal", ""), WAITS, WAITS), WAITS, WAITS),
    Result("Another", story("skipped"), Judgement(Verdict.SKIPPED, reason="no slurmdbd")),
)
ORIGIN = Origin("1a2b", "22.05.8", "fifo-skip")
RUN = Run("22.05.8", "fifo-skip", RESULTS)


def test_the_page_has_a_row_for_each_case_and_lists_where_headway_is_worse() -> None:
    text = page(RUN)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(RESULTS) + 2
    assert "4 cases, 1 skipped, 1 equal, 1 known limit, 1 worse" in text
    assert "accepted (pending: Needs 1 GPU.), not refused: no such feature" in text
    assert "“nobody \\| knows”" in text
    assert "| `skipped` | `` | | | skipped: no slurmdbd |" in text


def test_delays_and_second_tries_are_told() -> None:
    alone = CaseOutcome({"a": JobOutcome(began_s=1.0), "b": JobOutcome(began_s=2.0), "c": WAITS.jobs["job"]})
    headway = CaseOutcome({"a": JobOutcome(began_s=2.0), "b": JobOutcome(began_s=5.0), "c": JobOutcome(began_s=3.0)})
    again = Result("Subject", one("again", ""), Judgement(Verdict.EQUAL), alone, replace(headway, second_try=True))
    run = Run("22.05.8", "fifo-skip", [again])
    told = "Jobs began later under Headway by 2.0 s (median of 2); 1 cases are as they were at the second try."
    assert summary(run) == f"1 cases: 1 equal. {told}"
    assert told in page(run)
    assert "equal at the second try |" in page(run)


def test_every_row_has_as_many_cells_as_its_table() -> None:
    widths = set()
    for line in page(RUN).splitlines():
        if line.startswith("|"):
            widths.add(line.replace("\\|", "").count("|"))
    assert widths == {3, 6}


def test_the_exit_status_depends_on_what_is_worse_and_not_documented() -> None:
    assert RUN.is_worse
    assert not Run("22.05.8", "fifo-skip", RESULTS[1:]).is_worse
    assert summary(RUN) == "4 cases: 1 skipped, 1 equal, 1 known limit, 1 worse. No job began on both."
    assert table(RUN).row_count == len(RESULTS)


def test_a_record_keeps_both_outcomes(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert read(path, ORIGIN) == {}
    again = replace(WAITS, second_try=True)
    write(path, [*RESULTS, Result("Another", one("again", ""), Judgement(Verdict.EQUAL), WAITS, again)], ORIGIN)
    kept = read(path, ORIGIN)
    assert set(kept) == {"worse", "known", "equal", "again"}
    assert (kept["worse"], kept["again"]) == ((REFUSED, WAITS), (WAITS, again))


@pytest.mark.parametrize("other", [{"commit": "1a2b+"}, {"release": "26.05.5"}, {"policy": "backfill:order=slurm"}])
def test_a_record_of_another_commit_release_or_policy_is_refused(tmp_path: Path, other: dict[str, str]) -> None:
    path = tmp_path / "record.json"
    write(path, RESULTS, ORIGIN)

    with pytest.raises(OtherOriginError, match="commit 1a2b, Slurm"):
        read(path, replace(ORIGIN, **other))


def test_a_record_without_an_origin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"worse": {}}')

    with pytest.raises(OtherOriginError, match="earlier version"):
        read(path, ORIGIN)


def test_the_commit_of_this_checkout_is_an_id_or_not_known() -> None:
    assert re.fullmatch(r"([0-9a-f]{40}\+?)?", commit_here())
