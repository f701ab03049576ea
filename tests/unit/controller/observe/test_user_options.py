"""Wishes in a job's comment."""

import pytest

from controller.observe.user_options import NO_OPTIONS, UserOptions, read_user_options, unknown_options_text


@pytest.mark.parametrize(
    ("comment", "options"),
    [
        ("", NO_OPTIONS),
        ("my run of Tuesday", NO_OPTIONS),
        ("headway=off", UserOptions(profile=False)),
        ("headway=preemptible", UserOptions(preemptible=True)),
        ("my run headway=preemptible+min-gpus:2+max-gpus:8", UserOptions(preemptible=True, min_gpus=2, max_gpus=8)),
        ("headway=min-gpus:2 and headway=max-gpus:08", UserOptions(min_gpus=2, max_gpus=8)),
        ("headway=min-gpus:2+min-gpus:4", UserOptions(min_gpus=4)),
        ("\theadway=preemptible\n", UserOptions(preemptible=True)),
        ("headway=", NO_OPTIONS),
        ("headway=+preemptible+", UserOptions(preemptible=True)),
    ],
)
def test_options_are_words_of_the_comment(comment, options):
    assert read_user_options(comment) == options


@pytest.mark.parametrize("comment", ["headway", "myheadway=preemptible", "x/headway=off", "HEADWAY=off"])
def test_other_words_of_the_comment_are_the_users_own(comment):
    assert read_user_options(comment) == NO_OPTIONS


@pytest.mark.parametrize(
    "wish",
    ["Preemptible", "min-gpus", "min-gpus:", "min-gpus:0", "max-gpus:-1", "max-gpus:99999999", "min-gpus:٣", "faster"],
)
def test_options_that_are_not_understood_are_reported_and_the_rest_counts(wish):
    found = read_user_options(f"headway={wish}+preemptible")
    assert found == UserOptions(preemptible=True, unknown=(wish,))
    assert wish in unknown_options_text(found)


def test_a_least_above_the_most_counts_for_nothing():
    found = read_user_options("headway=min-gpus:8+max-gpus:2")
    assert (found.min_gpus, found.max_gpus, found.elastic) == (None, None, False)
    assert found.unknown == ("min-gpus:8+max-gpus:2",)


def test_sizes_within_the_options():
    assert [n for n in range(10) if read_user_options("headway=min-gpus:2+max-gpus:4").allows(n)] == [2, 3, 4]
    assert not NO_OPTIONS.allows(0)
    assert NO_OPTIONS.allows(10_000)
    assert unknown_options_text(NO_OPTIONS) == ""
