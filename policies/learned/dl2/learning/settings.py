"""Settings of continued learning, from the options of the policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from policies.learned.dl2.learning.history import DAY_S, MOST_JOBS, HistoryLimits
from policies.learned.dl2.learning.replay_trace import FEWEST_JOBS
from policies.options import number, whole

_MOST_MEMORY_MIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnSettings:
    """Settings of continued learning."""

    folder: Path
    """Folder of the history, the weights in service, and the last attempt."""
    every_s: float
    """Minimum time between the end of an attempt and the next, seconds."""
    limits: HistoryLimits
    rounds: int
    """Rounds of reinforcement learning of an attempt on replays; in the first, the value network learns alone. 0 in an attempt
    that compares weights which are there already."""
    longest_s: float
    """Time after which an attempt is stopped, seconds."""
    memory_mib: int
    """Maximum data of the training process, MiB."""

    @classmethod
    def of_options(
        cls,
        learn: object,
        every_s: object,
        jobs: object,
        days: object,
        rounds: object,
        longest_s: object,
        memory: object,
    ) -> LearnSettings | None:
        """Return the settings; None if `learn` is empty. Raises ValueError that names the option."""
        if not learn:
            return None
        folder = Path(str(learn)).expanduser()  # a folder such as 2026 is read as a number on command lines
        if not folder.is_absolute():
            raise ValueError(f"learn is {learn!r}; give an absolute path, because a service has no folder of its own")
        return cls(
            folder=folder,
            every_s=number("learn_every_s", every_s, unit="seconds"),
            limits=HistoryLimits(
                whole("learn_jobs", jobs, least=FEWEST_JOBS, most=MOST_JOBS),
                number("learn_days", days, unit="days", positive=True) * DAY_S,
            ),
            rounds=whole("learn_rounds", rounds, least=2),
            longest_s=number("learn_longest_s", longest_s, unit="seconds", positive=True),
            memory_mib=whole("learn_memory_mib", memory, least=256, most=_MOST_MEMORY_MIB),
        )
