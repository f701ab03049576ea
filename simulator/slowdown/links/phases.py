"""Jobs that compute and send in turns on shared links, as a course of events.

Each job sends, computes, sends again. The jobs that send at a moment have max-min fair rates (`progressive_filling`). So how much
two jobs slow each other down depends on when they send. For two equal jobs that compute for c and send for t <= c at the full rate
of one link, d apart, a step takes c + 2t - d for d up to t, and c + t where neither meets the other.

What is hidden behind computing follows the law of `max_min`: between two sends a job computes for step(t') - t', where t' is what
its last send took. A paced job begins no send sooner than its pace after the one before; a late one goes on at once, and is not
brought back into phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from simulator.slowdown.links.progressive_filling import max_min

WARM = 2
"""Sends of each job before its steps are counted."""
STEPS = 8
"""Steps of each job that are counted, at least."""
_MOST_SENDS = 2000
"""Sends of all jobs after which a course of up to 400 jobs ends; jobs of very different periods could go on for long. A job that
has begun no send after half of them begins then: beside jobs that are so much quicker, its phase does not matter."""
_MOST_SENDS_EACH = 5
"""The same for each job, where there are more: three steps are counted of jobs that are alike."""
_DONE = 1e-9


@dataclass(frozen=True, slots=True)
class Sender:
    """One job."""

    send_s: float
    """Seconds of its send at the full rate."""
    rate: float
    """Its full rate, without other jobs."""
    step_s: Callable[[float], float]
    """From the seconds of a send to those of the whole step."""
    begin_s: float
    """Time of its first send."""
    pace_s: float = 0.0
    """Least seconds between two of its sends."""


@dataclass(slots=True)
class _Run:
    """A sender on its course. Invariant: it computes while `left_s` is 0, and its next send begins at `next_s`."""

    sender: Sender
    next_s: float
    left_s: float = 0.0
    """Rest of its send, in seconds at the full rate."""
    began_s: float = 0.0
    """Begin of its last send."""
    begun: int = 0
    counted_from_s: float = 0.0
    sent_s: float = 0.0
    """All that it has sent, in seconds at the full rate."""
    sending_s: float = 0.0
    """Seconds in which it has sent that."""

    def send(self, seconds: float, share: float) -> None:
        """Send for so long at that share of the full rate."""
        self.left_s -= seconds * share
        self.sent_s += seconds * share
        self.sending_s += seconds

    def begin(self, now_s: float) -> None:
        """Begin a send."""
        self.began_s = now_s
        self.left_s = self.sender.send_s
        self.begun += 1
        if self.begun == WARM:
            self.counted_from_s = now_s
        if not self.left_s:  # it has nothing to send
            self.end(now_s)

    def end(self, now_s: float) -> None:
        """End a send, and compute."""
        self.left_s = 0.0
        took_s = now_s - self.began_s
        computed_s = max(0.0, self.sender.step_s(took_s) - took_s)
        self.next_s = max(now_s + computed_s, self.began_s + self.sender.pace_s)

    @property
    def mean_s(self) -> float:
        """The mean of the counted steps; of a job that made none, the time of a step at the mean rate of its sends so far."""
        if self.begun <= WARM:
            slower = self.sending_s / self.sent_s if self.sent_s else 1.0
            return max(self.sender.step_s(self.sender.send_s * slower), self.sender.pace_s)
        return (self.began_s - self.counted_from_s) / (self.begun - WARM)


def step_seconds(
    senders: Mapping[int, Sender], uses: Mapping[int, Mapping[int, float]], capacity: Mapping[int, float]
) -> dict[int, float]:
    """Return the mean seconds of a step of each job. `uses[job][link]` is the capacity that a unit of its rate takes.

    The same jobs give the same result, in whatever order they are given.
    """
    runs = {job: _Run(senders[job], senders[job].begin_s) for job in sorted(senders)}
    known: dict[tuple[int, ...], list[tuple[_Run, float]]] = {}
    now_s, sends, short = 0.0, 0, len(runs)
    most = max(_MOST_SENDS, _MOST_SENDS_EACH * len(runs))
    hurried = False
    while short and sends < most:
        if not hurried and 2 * sends >= most:
            hurried = True
            _begin_at_once(runs.values(), now_s)
        sending = tuple([job for job, run in runs.items() if run.left_s])
        shares = known.get(sending)
        if shares is None:
            rates = _shares(sending, senders, uses, capacity)
            shares = known[sending] = [(runs[job], rates[job]) for job in sending]
        idle = [run for run in runs.values() if not run.left_s]
        passes_s = min([run.left_s / share for run, share in shares] + [run.next_s - now_s for run in idle])
        now_s += passes_s
        for run, share in shares:
            run.send(passes_s, share)
            if run.left_s <= _DONE * run.sender.send_s:
                run.end(now_s)
        for run in idle:
            if run.next_s <= now_s:
                run.begin(now_s)
                sends += 1
                short -= run.begun == WARM + STEPS
    return {job: run.mean_s for job, run in runs.items()}


def _begin_at_once(runs: Iterable[_Run], now_s: float) -> None:
    """Let jobs that have begun no send begin now."""
    for run in runs:
        if not run.begun:
            run.next_s = now_s


def _shares(
    sending: tuple[int, ...],
    senders: Mapping[int, Sender],
    uses: Mapping[int, Mapping[int, float]],
    capacity: Mapping[int, float],
) -> dict[int, float]:
    """Return the rates of the jobs that send, as shares of their full rates."""
    full = {job: senders[job].rate for job in sending}
    rates = max_min({job: uses[job] for job in sending}, capacity, full)
    return {job: rates[job] / full[job] for job in sending}
