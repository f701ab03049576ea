"""Estimates of starts as people read them."""

import time

import pytest

from controller.base.start_text import past_of_all, start_range, start_sentence

NOW_S = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("earliest", "latest", "text"),
    [
        (7800, 12_600, "between 14:10 and 15:30"),
        (-5, 12_600, "before 15:30"),
        (-5, 20, "within a minute"),
        (7800, None, "after 14:10, perhaps much later"),
        (7800, 90_000, "between 14:10 and 2026-05-05 13:00"),
    ],
)
def test_a_sentence_has_the_times_of_day(earliest, latest, text) -> None:
    latest_s = 0.0 if latest is None else NOW_S + latest
    sentence = start_sentence(NOW_S + earliest, latest_s, 41, 50, "", NOW_S)

    assert sentence == f"It is expected to start {text} (of such estimates 8 in 10 held)."


def test_a_sentence_says_whose_rule_it_follows_and_that_it_has_no_past() -> None:
    sentence = start_sentence(NOW_S, NOW_S + 9000, 9, 9, "fifo-skip", NOW_S)

    assert "too few such estimates yet to say how many hold; computed as if policy fifo-skip decided" in sentence


def test_a_column_has_the_time_from_now() -> None:
    found = [start_range(NOW_S + a, b and NOW_S + b, NOW_S) for a, b in ((720, 7500), (3, 300), (3, 9), (11_000, 0))]

    assert found == ["12 min - 2 h 5 min", "< 5 min", "< 1 min", "> 3 h 3 min"]


@pytest.mark.parametrize(
    ("estimates", "text"),
    [
        ([], ""),
        ([(41, 50, ""), (8, 10, "")], "Starts: of such estimates 8 in 10 held."),
        ([(41, 50, ""), (36, 50, ""), (9, 10, ""), (1, 9, "")], "Starts: of such estimates 7 to 9 in 10 held."),
        ([(9, 9, "")], "Starts: too few such estimates yet to say how many hold."),
        (
            [(8, 10, "fifo"), (8, 10, "fifo")],
            "Starts: of such estimates 8 in 10 held; computed as if policy fifo decided.",
        ),
    ],
)
def test_a_list_has_the_shares_of_its_horizons(estimates: list[tuple[int, int, str]], text: str) -> None:
    assert past_of_all(estimates) == text
