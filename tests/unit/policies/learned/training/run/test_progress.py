"""The bar of a training shows the time that is left, also where a round takes long."""

from __future__ import annotations

import io

from policies.learned.training.run.progress import TrainingProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_time_that_is_left_is_known_although_a_round_takes_a_minute() -> None:
    times_s = [0.0]
    with TrainingProgress(Terminal(), lambda: times_s[-1]) as shown:
        for done in range(4):
            shown.round("training", done, 16)
            times_s.append(times_s[-1] + 60.0)
        assert shown._bar is not None
        (task,) = shown._bar.tasks
        assert task.time_remaining == 13 * 60.0
