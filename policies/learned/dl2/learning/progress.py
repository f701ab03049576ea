"""The attempts so far, in a small file: after a restart, the next attempt comes when it would have come."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from policies.documents import is_version, is_whole
from policies.errors import TrainingError
from policies.learned.dl2.learning.result import AttemptResult
from policies.learned.weights.files import write_whole

_MOST = 1 << 16
_FORMAT = 2
_FORMAT_WITHOUT_COMPARED = 1
_COUNTS = ("attempts", "compared", "promotions")
_MOST_COUNT = (1 << 53) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Attempts since the folder was made."""

    attempts: int = 0
    compared: int = 0
    """Attempts that ended with a comparison: each further one needs a clearer result (`statistics.spent_level`)."""
    promotions: int = 0
    last: AttemptResult | None = None

    def save(self, path: Path) -> None:
        """Write it, completely or not at all. Raises OSError."""
        values = {"format": _FORMAT, **asdict(self)}
        write_whole(path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Progress:
        """Read it; a missing file is no attempt. Raises TrainingError for one that is damaged or of another format, and OSError."""
        try:
            with path.open("rb") as file:
                content = file.read(_MOST)
        except FileNotFoundError:
            return cls()
        try:
            values = json.loads(content)
            form = values.pop("format")
            if is_version(form, _FORMAT_WITHOUT_COMPARED):
                values["compared"] = values["attempts"]  # at most so many
            elif not is_version(form, _FORMAT):
                raise ValueError("another format")
            last = values.pop("last")
            if values.keys() != set(_COUNTS):
                raise ValueError("other keys than this version knows")
            counts = values.values()
            if not all(is_whole(each, 0, _MOST_COUNT) for each in counts):
                raise ValueError("a number is none")
            return cls(
                **values,
                last=None if last is None else AttemptResult.from_json(json.dumps(last).encode()),
            )
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            raise TrainingError(f"{path}: cannot be read ({error}); the attempts are counted from 0 again") from error
