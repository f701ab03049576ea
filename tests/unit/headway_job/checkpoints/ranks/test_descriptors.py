"""Each rank is connected to every other one: the limit of open files is raised for that, as far as the hard limit allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.unit.headway_job.checkpoints.conftest import ForkServer

PROGRAM = "ranks.few_descriptors.limited"


def test_a_soft_limit_that_is_too_low_is_raised(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run(PROGRAM, 3, folder=folder, soft=3, hard=None)

    assert ended.ends == [0] * 3, ended.logs
    for rank in range(3):
        assert (ended.reported("refused", rank), ended.reported("saved", rank)) == ("", 1)
        assert ended.reported("soft", rank) == ended.reported("in_use", rank) + 2 * 2 + 8 + 512
        before, after = ended.reported("hard", rank)
        assert before == after


def test_a_soft_limit_that_is_high_enough_stays(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run(PROGRAM, 2, folder=folder, soft=600, hard=None)

    assert ended.ends == [0] * 2, ended.logs
    assert ended.reported("soft") == ended.reported("in_use") + 600
    assert ended.reported("saved") == 1


def test_a_hard_limit_that_is_just_enough_is_used(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run(PROGRAM, 2, folder=folder, soft=20, hard=40)

    assert ended.ends == [0] * 2, ended.logs
    assert ended.reported("soft") == ended.reported("in_use") + 40
    assert ended.reported("saved") == 1


def test_a_hard_limit_that_is_too_low_is_refused_with_the_number_that_is_needed(
    fork_server: ForkServer, folder: Path
) -> None:
    ended = fork_server.run(PROGRAM, 3, folder=folder, soft=2, hard=3)

    for rank in range(3):
        refused, in_use = ended.reported("refused", rank), ended.reported("in_use", rank)
        assert f"needs 12 more, most of them 2 for each other rank, and its limit is {in_use + 3}." in refused
        assert f"Let `ulimit -n` of the job be {in_use + 12 + 512} or more." in refused
        assert "GLOO_SOCKET_IFNAME" not in refused
