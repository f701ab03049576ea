"""The result of an attempt, as JSON: the training process writes it, and the server reads it strictly."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace

from policies.documents import is_number, is_whole
from policies.errors import TrainingError
from policies.learned.evaluation.statistics import spent_level, widened

PROMOTED, NOT_BETTER, FAILED, STOPPED = "promoted", "not better", "failed", "stopped"
RESULTS = (PROMOTED, NOT_BETTER, FAILED, STOPPED)
_LONGEST = 300
_MOST_COUNT = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """One attempt to make better weights. `PROMOTED` in the result of a process means that the weights may be promoted."""

    result: str
    """One of RESULTS."""
    reason: str = ""
    """Why the weights were not promoted; empty if they were."""
    parent: str = ""
    """Digest of the weights that it began with."""
    candidate: str = ""
    """Digest of the new weights; empty if there are none."""
    jobs: int = 0
    """Jobs of the history that it used."""
    newest_s: float = 0.0
    """Latest end of these jobs, Unix time."""
    windows: int = 0
    """Windows of the comparison."""
    change: float | None = None
    """Mean of the relative change of the average JCT, window by window; None: not compared."""
    ci95: float | None = None
    """Half of its 95 % interval."""
    ended_s: float = 0.0
    """End of the attempt, Unix time."""
    took_s: float = 0.0

    def __post_init__(self) -> None:
        """Raises TrainingError for a value of another kind."""
        texts = (self.result, self.reason, self.parent, self.candidate)
        counts, numbers = (self.jobs, self.windows), (self.newest_s, self.ended_s, self.took_s)
        optional = [each for each in (self.change, self.ci95) if each is not None]
        if not all(isinstance(each, str) for each in texts) or self.result not in RESULTS:
            raise TrainingError("the result of an attempt has a text that is none")
        if not all(is_whole(each, 0, _MOST_COUNT) for each in counts):
            raise TrainingError("the result of an attempt has a count that is none")
        if not all(is_number(each, low=0.0) for each in numbers) or not all(map(is_number, optional)):
            raise TrainingError("the result of an attempt has a number that is none")

    def half_interval(self, compared: int) -> float | None:
        """Return half of the interval of the change at the level of a comparison after so many others; None without one."""
        if self.ci95 is None or self.windows < 2:
            return None
        return widened(self.ci95, self.windows, spent_level(compared + 1))

    def is_better(self, compared: int) -> bool:
        """Return whether that whole interval is below zero."""
        half = self.half_interval(compared)
        return self.change is not None and half is not None and self.change + half < 0

    @property
    def is_worse(self) -> bool:
        """True if the whole 95 % interval of the change is above zero."""
        return self.change is not None and self.ci95 is not None and self.change - self.ci95 > 0

    def to_json(self) -> bytes:
        """Return the text that `from_json` reads."""
        short = replace(self, reason=" ".join(self.reason.split())[:_LONGEST])
        return (json.dumps(asdict(short), indent=2, allow_nan=False) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> AttemptResult:
        """Read a result. Raises TrainingError."""
        try:
            values = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise TrainingError(f"the result of an attempt is not JSON: {error}") from error
        if not isinstance(values, dict) or values.keys() != {each.name for each in fields(cls)}:
            raise TrainingError("the result of an attempt has other keys than this version knows")
        return cls(**values)
