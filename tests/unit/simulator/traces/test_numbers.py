"""Texts become exact numbers, by the fast path and by the slow one."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.traces.numbers import BadCellError, amounts, counts, flags, instants_ns, times_ns
from simulator.traces.trace import MAX_TIME_S


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("12", 12_000_000_000),
        ("0.1", 100_000_000),
        ("3.000000001", 3_000_000_001),
        ("4000000000", MAX_TIME_S * 10**9),
        ("123456789.123456789", 123_456_789_123_456_789),
        ("1.0000000005", 1_000_000_000),
        ("1.0000000015", 1_000_000_002),
        ("1e3", 1_000_000_000_000),
        ("2.5E-3", 2_500_000),
        (".5", 500_000_000),
        ("7.", 7_000_000_000),
        (" 8 ", 8_000_000_000),
        ("+9", 9_000_000_000),
        ("0000000000000000000000001", 1_000_000_000),
    ],
)
def test_seconds_become_exact_nanoseconds(text: str, nanoseconds: int) -> None:
    assert times_ns([text], zero=True).tolist() == [nanoseconds]
    assert times_ns([text, "1e0"], zero=True).tolist() == [nanoseconds, 1_000_000_000]


@given(
    st.lists(
        st.decimals(0, 10**9, places=9).map(lambda number: f"{number:f}") | st.integers(0, 10**9).map(str), min_size=1
    )
)
def test_all_plain_decimals_are_exact(texts: list[str]) -> None:
    exact = [int((Decimal(text) * 10**9).to_integral_value(ROUND_HALF_EVEN)) for text in texts]
    assert times_ns(texts, zero=True).tolist() == exact


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-5", "is negative"),
        ("-1e-15", "is negative"),
        ("0", "is zero"),
        ("0.0", "is zero"),
        ("", "is empty"),
        ("  ", "is empty"),
        ("nan", "missing value"),
        ("NULL", "missing value"),
        ("inf", "is infinite"),
        ("-Infinity", "is infinite"),
        ("1,5", "with a comma"),
        ("ten", "is not a number"),
        ("1_000", "is not a number"),
        ("٣", "is not a number"),
        ("1.2.3", "is not a number"),
        (".", "is not a number"),
        ("1e999", "more than 126 years"),
        ("4000000000.1", "more than 126 years"),
        ("99999999999999999999", "more than 126 years"),
    ],
)
@pytest.mark.parametrize("before", [["3"], ["3.25"], ["1e1"]])
def test_invalid_durations_are_refused(text: str, message: str, before: list[str]) -> None:
    with pytest.raises(BadCellError, match=message) as caught:
        times_ns([*before, text], zero=False)
    assert (caught.value.row, caught.value.text) == (1, text)


def test_missing_times_are_accepted_where_they_are_optional() -> None:
    assert times_ns(["", "2"], zero=False, missing=True).tolist() == [-1, 2 * 10**9]


def test_whole_numbers() -> None:
    assert counts(["1", "16"], of="GPUs").tolist() == [1, 16]
    assert counts(["4.0", "2"], of="GPUs").tolist() == [4, 2]
    assert counts(["", "2"], of="GPUs", missing=True).tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2.5", "not a whole number of GPUs"),
        ("0", "is zero"),
        ("-1", "is negative"),
        ("99999999", "more than 10,000,000"),
    ],
)
def test_invalid_whole_numbers_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadCellError, match=message):
        counts(["1", text], of="GPUs")


def test_flags() -> None:
    assert flags(["0", "1", "True", "false", ""], default=True).tolist() == [False, True, True, False, True]
    with pytest.raises(BadCellError, match="neither yes nor no"):
        flags(["maybe"], default=True)


def test_instants() -> None:
    assert instants_ns(["1970-01-02 00:00:01", "1970-01-01T01:00:00.5+01:00", "86400.25", "None", ""]).tolist() == [
        86_401_000_000_000,
        500_000_000,
        86_400_250_000_000,
        -1,
        -1,
    ]
    with pytest.raises(BadCellError, match="not a date"):
        instants_ns(["yesterday"])


def test_amounts_are_numbers_or_nan() -> None:
    assert np.array_equal(amounts(["1.5", "x", ""]), [1.5, np.nan, np.nan], equal_nan=True)
