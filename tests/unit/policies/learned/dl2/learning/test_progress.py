"""The attempts so far survive restarts; a damaged file costs only the counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.errors import TrainingError
from policies.learned.dl2.learning.progress import Progress
from policies.learned.dl2.learning.result import NOT_BETTER, PROMOTED, AttemptResult

RESULT = AttemptResult(
    result=NOT_BETTER,
    reason="no",
    parent="a",
    jobs=300,
    newest_s=5.0,
    windows=6,
    change=0.1,
    ci95=0.2,
    ended_s=7.0,
    took_s=3.0,
)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    assert Progress.load(tmp_path / "none") == Progress()
    for progress in (Progress(), Progress(attempts=3, compared=2, promotions=1, last=RESULT)):
        progress.save(tmp_path / "attempts.json")
        assert Progress.load(tmp_path / "attempts.json") == progress
    assert AttemptResult.from_json(RESULT.to_json()) == RESULT


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null",
     b'{"format": true, "attempts": 0, "promotions": 0, "last": null}',
     b'{"format": 2, "attempts": 0, "promotions": 0, "last": null}',
     b'{"format": 3, "attempts": 0, "compared": 0, "promotions": 0, "last": null}',
     b'{"format": 2, "attempts": 1, "compared": -1, "promotions": 0, "last": null}', b"\xff" * 100,
     b'{"format": 1, "attempts": -1, "promotions": 0, "last": null}',
     b'{"format": 1, "attempts": 1, "promotions": 0, "last": {}}',
     b'{"format": 1, "attempts": 1, "promotions": 0, "last": 5}',
     b'{"format": 1, "attempts": true, "promotions": 0, "last": null}', b"[" * 60_000],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "attempts.json").write_bytes(content)
    with pytest.raises(TrainingError):
        Progress.load(tmp_path / "attempts.json")


def test_all_attempts_of_a_file_without_comparisons_count_as_compared(tmp_path: Path) -> None:
    (tmp_path / "attempts.json").write_text('{"format": 1, "attempts": 3, "promotions": 1, "last": null}')
    assert Progress.load(tmp_path / "attempts.json") == Progress(attempts=3, compared=3, promotions=1)


@pytest.mark.parametrize(
    "content",
    [
        RESULT.to_json().replace(b"0.2", b"NaN"),
        RESULT.to_json().replace(b"0.2", b"1e999"),
        RESULT.to_json().replace(b"300", b"-300"),
        RESULT.to_json().replace(b"300", b"9" * 400),
        RESULT.to_json().replace(b"0.1", b"-" + b"9" * 400),
        RESULT.to_json().replace(b'"no"', b"5"),
        RESULT.to_json().replace(NOT_BETTER.encode(), b"splendid"),
        b"{}",
        b"",
    ],
)
def test_a_result_of_another_kind_is_refused(content: bytes) -> None:
    with pytest.raises(TrainingError):
        AttemptResult.from_json(content)


def test_only_an_interval_below_zero_is_better() -> None:
    def better(change: float | None, ci95: float | None, compared: int = 0, windows: int = 6) -> bool:
        return AttemptResult(result=PROMOTED, change=change, ci95=ci95, windows=windows).is_better(compared)

    assert better(-0.1, 0.05)
    assert not better(-0.1, 0.05, windows=1)
    # later comparisons need a clearer result: with six windows, the interval of the tenth is 3 times as wide
    assert not better(-0.1, 0.05, compared=9)
    assert better(-0.2, 0.05, compared=9)
    assert not better(-0.1, 0.09)
    assert not better(-0.1, 0.1)
    assert not better(-0.1, None)
    assert not better(None, None)
    assert not better(0.1, 0.05)
