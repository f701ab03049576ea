"""Request to the forecasting process, and its answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controller.forecast.past_runs import StoredKey
from policies.model import ClusterState
from policies.wire.messages import parse_state, serialize_state

_LISTS = ("keys", "users", "names", "limits_s", "ending", "order", "free_s", "start_s")


@dataclass(frozen=True, slots=True)
class Request:
    """The newest state, and facts that are not in it; a list has one entry per row of the state unless it says otherwise."""

    state: ClusterState
    policy: str
    """Name of the deciding policy."""
    journal: str
    tracks: str
    """Paths of the journal and of the file with earlier ranges."""
    keys: Sequence[StoredKey]
    users: Sequence[str]
    names: Sequence[str]
    """Users, and names of jobs."""
    limits_s: Sequence[float | None]
    ending: Sequence[int]
    """Rows of jobs whose work is done, and that Slurm still ends."""
    order: Sequence[int]
    """Rows of waiting jobs in the policy's order."""
    cpu_s: float
    """CPU time of the process after which no further sample begins, seconds."""
    free_s: Sequence[float] = ()
    start_s: Sequence[float] = ()
    """Measured times of changeovers, in any number (`simulator.forecast.changeover`)."""

    def encode(self) -> bytes:
        """Return a line of JSON, and the state's message behind it."""
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        head = {"policy": self.policy, "journal": self.journal, "tracks": self.tracks, "cpu_s": self.cpu_s, **lists}
        return json.dumps(head).encode() + b"\n" + serialize_state(self.state)


def decode_request(data: bytes) -> Request:
    """Return the request that `encode` wrote."""
    head, _, message = data.partition(b"\n")
    read: dict[str, Any] = json.loads(head)
    read["keys"] = [(job_id, submit_s) for job_id, submit_s in read["keys"]]
    return Request(state=parse_state(message), **read)


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of one job from now on, seconds: quantiles of 10 %, 50 % and 90 %. `latest_s` None: no time can be given."""

    row: int
    earliest_s: float
    median_s: float
    latest_s: float | None
    held: int
    """Number of earlier ranges of about this horizon that held."""
    known: int
    """Number of those of which it is known whether they held."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The ranges of waiting jobs, by rows of the state; jobs without one are left out."""

    stand_in: str
    """Policy whose rule stood in for that of the deciding policy; empty: its own."""
    waits: Sequence[Waits]
    held: int = 0
    missed: int = 0
    """Numbers of earlier ranges whose jobs started within and outside them, in all."""

    def encode(self) -> bytes:
        """Return the answer as JSON."""
        rows = [(one.row, one.earliest_s, one.median_s, one.latest_s, one.held, one.known) for one in self.waits]
        return json.dumps({"stand_in": self.stand_in, "waits": rows, "held": self.held, "missed": self.missed}).encode()


def decode_answer(data: bytes) -> Answer:
    """Return the answer that `encode` wrote. Raises ValueError, TypeError, KeyError, OverflowError or RecursionError for others."""
    read = json.loads(data)
    return Answer(str(read["stand_in"]), [Waits(*one) for one in read["waits"]], int(read["held"]), int(read["missed"]))
