"""One ended job of the cluster's history, as a line of text with a checksum.

    CRC32 in 8 hexadecimal digits, a space, a JSON object, the end of the line

The reader refuses lines whose checksum, keys or values are wrong: what is replayed is what a job has done.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from zlib import crc32

from policies.documents import is_number, is_whole
from policies.errors import TrainingError

_SHARES = "shares"
LONGEST_LINE = 4096
"""Bytes of a line; a longer one is refused."""
_MOST_GPUS = 1_000_000
_MOST_EPOCHS = 1e9
_MOST_SIZES = 64
"""Sizes of one job that are recorded; of a job with more, the shortest are added to the next larger."""
_LEAST_SHARE = 0.05
"""Share of a training from which on the speed in a size counts as measured."""
_MOST_S = 4e9
"""Maximum time, seconds since the Unix epoch (year 2096); nothing lasts longer."""
_SLACK_S = 60.0
"""Clock difference between the machines that report times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """An ended job. Invariant: `check` holds. Times are in seconds since the Unix epoch."""

    job_id: str
    submit_time_s: float
    """Arrival; that of the first submission for requeued jobs."""
    finish_time_s: float
    num_gpus: int
    """GPUs that it requested."""
    min_gpus: int
    max_gpus: int
    model: str
    """Network that it trains; empty: not known."""
    batch_size: int
    """Examples per step over all GPUs, at `num_gpus`; -1: not known."""
    epochs: float
    """Epochs that its user states; 0: not stated."""
    service_s: float
    """Time spent running, all runs together."""
    sizes: tuple[tuple[int, float], ...]
    """GPUs that decisions gave it, and the seconds of service in each size, by rising size."""
    final_state: str
    """COMPLETED, FAILED, ... as Slurm says it."""
    shares: tuple[tuple[int, float], ...] = ()
    """GPUs that it had, and the share of its training that it made in each size, by its reported steps and by rising size; empty:
    not measured."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that no job has."""
        if problem := _problem(self):
            raise TrainingError(f"job {self.job_id[:64]!r}: {problem}")

    @property
    def key(self) -> tuple[str, float]:
        """Id and arrival, which together identify a job."""
        return self.job_id, self.submit_time_s

    @property
    def gpu_s(self) -> float:
        """GPU seconds that it used."""
        return sum(gpus * seconds for gpus, seconds in self.sizes)

    @property
    def requested_s(self) -> float:
        """Run time of what it trained at the size that it requested, seconds.

        By its measured speed in that size; without one, its GPU seconds divided by the size, as if it scaled linearly.
        """
        seconds, shares = dict(self.sizes), dict(self.shares)
        share = shares.get(self.num_gpus, 0.0)
        if share >= _LEAST_SHARE and self.num_gpus in seconds:
            return seconds[self.num_gpus] / share * min(sum(shares.values()), 1.0)
        return self.gpu_s / self.num_gpus

    def to_line(self) -> bytes:
        """Return the line that `from_line` reads."""
        text = json.dumps(asdict(self), separators=(",", ":"), allow_nan=False).encode()
        return b"%08x %s\n" % (crc32(text), text)

    @classmethod
    def from_line(cls, line: bytes) -> JobRecord:
        """Read a line strictly. Raises TrainingError."""
        if not line.endswith(b"\n") or len(line) > LONGEST_LINE:
            raise TrainingError("a line is cut short, or too long")
        check, text = line[:8], line[9:-1]
        if line[8:9] != b" " or check != b"%08x" % crc32(text):
            raise TrainingError("a line has another checksum than its content")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TrainingError(f"a line is not JSON: {error}") from error
        names = {each.name for each in fields(cls)}
        # Lines of earlier versions have no shares.
        if not isinstance(values, dict) or values.keys() | {_SHARES} != names:
            raise TrainingError("a line has other keys than this version knows")
        try:
            sizes = tuple((gpus, seconds) for gpus, seconds in values.pop("sizes"))
            shares = tuple((gpus, share) for gpus, share in values.pop(_SHARES, ()))
            return cls(sizes=sizes, shares=shares, **values)
        except (TypeError, ValueError) as error:
            raise TrainingError(f"a line has values of other types: {error}") from error


def few_sizes(seconds: dict[int, float]) -> tuple[tuple[int, float], ...]:
    """Return sizes and seconds, or shares, for a record, by rising size, without empty ones."""
    sizes = sorted((gpus, spent) for gpus, spent in seconds.items() if spent > 0)
    while len(sizes) > _MOST_SIZES:
        place = min(range(len(sizes) - 1), key=lambda at: sizes[at][1])
        (_, spent), (gpus, more) = sizes[place], sizes[place + 1]
        sizes[place : place + 2] = [(gpus, spent + more)]
    return tuple(sizes)


def _problem(record: JobRecord) -> str:
    """Return why no job can be like that; empty if one can."""
    texts = {"job_id": (1, 64), "model": (0, 128), "final_state": (0, 64)}
    for name, (least, most) in texts.items():
        text = getattr(record, name)
        if not isinstance(text, str) or not least <= len(text) <= most or not (text.isprintable() or not text):
            return f"{name} is not a printable text of {least} to {most} characters"
    for name, low, high in (
        ("submit_time_s", 0.0, _MOST_S),
        ("finish_time_s", 0.0, _MOST_S),
        ("service_s", 0.0, _MOST_S),
        ("epochs", 0.0, _MOST_EPOCHS),
    ):
        if not is_number(value := getattr(record, name), low, high):
            return f"{name} is {value!r}, not a number from {low:g} to {high:g}"
    for name, least_gpus in (("min_gpus", 1), ("num_gpus", record.min_gpus), ("max_gpus", record.num_gpus)):
        if not is_whole(value := getattr(record, name), least_gpus, _MOST_GPUS):
            return f"{name} is {value!r}, not a whole number from {least_gpus} to {_MOST_GPUS}"
    if not (record.batch_size == -1 or is_whole(record.batch_size, 1, 1 << 62)):
        return f"batch_size is {record.batch_size!r}, neither -1 nor above 0"
    return _problem_of_times(record)


def _problem_of_times(record: JobRecord) -> str:
    if record.finish_time_s < record.submit_time_s:
        return "it ended before it was submitted"
    if not 0 < record.service_s <= record.finish_time_s - record.submit_time_s + _SLACK_S:
        return f"service_s is {record.service_s:g}, more than the time since its submission, or 0"
    for gpus, seconds in record.sizes:
        if not (is_whole(gpus, 1, _MOST_GPUS) and is_number(seconds, 0.0, _MOST_S)):
            return f"sizes has {gpus!r} GPUs for {seconds!r} s"
    if not 1 <= len(record.sizes) <= _MOST_SIZES:
        return f"sizes has {len(record.sizes)} entries, not 1 to {_MOST_SIZES}"
    if abs(sum(seconds for _, seconds in record.sizes) - record.service_s) > 1.0 + 1e-6 * record.service_s:
        return "the seconds of its sizes do not add up to service_s"
    return _problem_of_shares(record)


def _problem_of_shares(record: JobRecord) -> str:
    if len(record.shares) > _MOST_SIZES:
        return f"shares has {len(record.shares)} entries, more than {_MOST_SIZES}"
    for gpus, share in record.shares:
        if not (is_whole(gpus, 1, _MOST_GPUS) and is_number(share, 0.0, 1.0)):
            return f"shares has {gpus!r} GPUs for {share!r} of its training"
    return "shares add up to more than a training" if sum(share for _, share in record.shares) > 1.0 + 1e-6 else ""
