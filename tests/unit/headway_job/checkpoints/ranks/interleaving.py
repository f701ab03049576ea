"""Two ranks of a run in threads, over a group in memory: every wait is seen, and delays come from a seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO
from unittest.mock import patch

from headway_job.checkpoints.catalog import Catalog
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.stores.base import Receipt
from headway_job.hook.save_requests import SaveRequests

WORLD = 2
_PAUSE_S = 0.05
_HANGS_S = 30.0
"""A story takes less than a second."""


class NotEndedError(AssertionError):
    """A rank has not ended."""


class _Meeting:
    """Calls of all ranks by their number, as in a group of gloo: the nth call of one rank meets the nth of each other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: list[dict[int, Any]] = []
        self._calls = [0] * WORLD
        self._gone: set[int] = set()

    def give(self, rank: int, value: Any) -> int:
        """Take part in this rank's next call. Return its number."""
        with self._changed:
            if rank in self._gone:
                raise RuntimeError("this rank has left")
            number = self._calls[rank]
            self._calls[rank] += 1
            while len(self._given) <= number:
                self._given.append({})
            self._given[number][rank] = value
            self._changed.notify_all()
            return number

    def is_over(self, number: int) -> bool:
        with self._changed:
            return len(self._given[number]) == WORLD or bool(self._gone)

    def get(self, number: int, most_s: float) -> dict[int, Any]:
        """Wait for all ranks' values of a call."""
        with self._changed:
            there = self._changed.wait_for(lambda: len(self._given[number]) == WORLD or self._gone, most_s)
            if not there:
                raise TimeoutError("the other rank did not come")
            if len(self._given[number]) < WORLD:
                raise RuntimeError("connection closed by peer")
            return dict(self._given[number])

    def leave(self, rank: int) -> None:
        with self._changed:
            self._gone.add(rank)
            self._changed.notify_all()

    @property
    def calls(self) -> list[int]:
        return list(self._calls)


class Group:
    """A RankGroup of one rank."""

    world_size = WORLD

    def __init__(self, rank: int, training: _Meeting, writing: _Meeting, delay: Callable[[], None]) -> None:
        self.rank = rank
        self._training, self._writing, self._delay = training, writing, delay

    def launch(self, values: Sequence[int]) -> Any:
        self._delay()
        return self._training.give(self.rank, list(values))

    def result(self, launched: Any, most_s: float | None = None) -> list[int]:
        self._delay()
        found = self._training.get(launched, 600.0 if most_s is None else most_s)
        return [max(column) for column in zip(*found.values(), strict=True)]

    def exchange(self, data: bytes) -> list[bytes]:
        self._delay()
        found = self._writing.get(self._writing.give(self.rank, data), 600.0)
        self._delay()
        return [found[rank] for rank in range(WORLD)]

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:
        number = self._writing.give(self.rank, data)
        return lambda: self._writing.is_over(number)

    def leave(self, *, writing: bool) -> None:
        if writing:
            self._writing.leave(self.rank)

    def settle(self) -> None:
        pass


class _Store:
    """A store in memory, which some ranks cannot write."""

    where = "memory"

    def __init__(self, fails: Callable[[], bool], delay: Callable[[], None]) -> None:
        self._fails, self._delay = fails, delay

    def folders(self) -> list[str]:
        return []

    def make(self, folder: str) -> None:
        self._delay()

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        self._delay()
        if self._fails():
            raise OSError(27, "File too large")
        return Receipt(1, bytes(32))

    def read(self, folder: str, name: str) -> BinaryIO:
        raise AssertionError

    def has(self, folder: str, name: str) -> bool:
        return False

    def size_bytes(self, folder: str, name: str) -> int | None:
        return 1

    def rename(self, old: str, new: str) -> None:
        pass

    def remove(self, folder: str, last: str) -> None:
        self._delay()


class _Objects:
    def copy(self, rank: int) -> dict[str, Any]:
        return {}


class Story:
    """One run of two ranks: requests, cancellations, failures and delays come from the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.steps = self._chance.randint(8, 40)
        self._fails = self._chance.choice(([], [0], [1], [0, 1], [0, 1]))
        self._slow = self._chance.choice((0.0, 0.001, 0.004))
        self.training, self.writing = _Meeting(), _Meeting()
        self.saved: dict[int, int | None] = {}
        self.errors: list[BaseException] = []
        self._requests = [SaveRequests() for _ in range(WORLD)]
        self._here = threading.local()
        self._step = threading.Barrier(WORLD, timeout=_HANGS_S)

    def play(self) -> None:
        """Run it. Raises NotEndedError if a rank does not end."""
        with patch("headway_job.hook.process.save_requests", lambda: self._requests[self._here.rank]):
            seeds = [self._chance.random() for _ in range(WORLD + 1)]
            ranks = [
                threading.Thread(target=self._rank, args=(rank, random.Random(seeds[rank])), daemon=True)
                for rank in range(WORLD)
            ]
            agent = threading.Thread(target=self._agent, args=(random.Random(seeds[WORLD]),), daemon=True)
            for thread in (*ranks, agent):
                thread.start()
            for thread in (*ranks, agent):
                thread.join(_HANGS_S)
                if thread.is_alive():
                    raise NotEndedError(f"calls: training {self.training.calls}, writing {self.writing.calls}")

    def _delay(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            time.sleep(chance.random() * self._slow)

    def _rank(self, rank: int, chance: random.Random) -> None:
        try:
            self._here.rank = rank
            delay = lambda: self._delay(chance)  # noqa: E731 - it needs this rank's generator
            store = _Store(lambda: rank in self._fails, delay)
            requests = self._requests[rank]
            requests.set_connected(connected=True)
            group = Group(rank, self.training, self.writing, delay)
            run = Run(group, Catalog(store, 2), _Objects(), None, None, 0)  # type: ignore[arg-type]
            run._pauses.register(0)
            for _ in run.steps(self.steps):
                delay()
                self._step.wait()  # as the all-reduce of the gradients
            self.saved[rank] = run.saved_step
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)

    def _agent(self, chance: random.Random) -> None:
        """Requests to save, and cancellations, which come to each rank at another time, or not at all."""
        for number in range(chance.randint(1, 3)):
            name = f"p{number}.1"
            events = [
                (chance.random() * self._slow * 40, rank, what)
                for rank in range(WORLD)
                for what in ("save", "go_on")
                if what == "go_on" or chance.random() < 0.8
            ]
            begun_s = time.monotonic()
            for after_s, rank, what in sorted(events):
                time.sleep(max(begun_s + after_s - time.monotonic(), 0.0))
                if what == "save":
                    self._requests[rank].receive_save(name, _PAUSE_S)
                else:
                    self._requests[rank].receive_go_on(name)
