"""Features of every server and every candidate of a state, computed before anything is learned.

The state contains all of it in principle. But a network could hardly learn from rewards that a job fits on a server where the g-th
GPU is free, where packing would put it, how long it would run there, when it could have its best locality, and how many empty
servers the large waiting jobs are short of.

The module is compiled where possible (`features.pxd` has the C types): a search plays tens of millions of decisions. Compiled or
not, the source is the same and gives the same numbers to the bit.
"""

from __future__ import annotations

from math import log, log1p, log2

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.feature_columns import (
    ABSENT_SHARE,
    BREAKS_EMPTY,
    BREAKS_LARGE,
    BREAKS_LARGE_QUEUE,
    BREAKS_LARGE_WAIT,
    BREAKS_MISSING,
    BREAKS_ONE_OF_TWO,
    BREAKS_QUEUE,
    FREE_SHARE,
    GAIN_OF_STARTING,
    GPUS,
    GPUS_LEFT,
    IS_EMPTY,
    IS_SPREAD,
    LARGE_MISSING,
    LARGE_QUEUE,
    LOG_GPUS,
    LOG_RELATIVE_WAIT,
    LOG_SPREAD_LOSS,
    LOG_TIME,
    LOG_TIME_NOW,
    LOG_UNTIL_CLEAR,
    LOG_UNTIL_LOCAL,
    LOG_WAIT,
    NEVER_H,
    OF_JOB,
    OF_SERVER,
    OUTLASTS,
    OUTLASTS_OTHERS,
    QUEUE_TIMES_LOG_GPUS,
    QUEUE_TIMES_LOG_TIME,
    SHARES_OUTLASTS,
    SIZE_FLAGS,
    SMALL_LARGE,
    SMALL_LARGE_QUEUE,
    SMALL_LARGE_WAIT,
    SMALL_MISSING,
    TIME_LOST,
    FeatureColumns,
)
from policies.learned.sched2.state.placements import NUM_PLACEMENTS
from policies.learned.sched2.state.state_columns import JOB_NUMBERS, REST_NUMBERS, StateColumns

FloatArray = npt.NDArray[np.float32]
Rule = npt.NDArray[np.float64]
Flags = npt.NDArray[np.uint8]
_SHORTEST_H = 0.02


class Features:
    """Computes rows of features, see `FeatureColumns`. Invariant: the row of a state does not depend on earlier states."""

    def __init__(self, columns: StateColumns) -> None:
        self._nodes = columns.nodes
        self._gpus = columns.gpus
        self._candidates = columns.candidates
        self._size = FeatureColumns(columns).size
        self._jobs_at, self._first_at, self._rest_at = FeatureColumns(columns).parts
        self._of_job = OF_JOB
        self._state_jobs = columns.nodes * columns.gpus
        self._job_numbers = JOB_NUMBERS
        self._placements = NUM_PLACEMENTS
        self._rest_numbers = REST_NUMBERS
        self._never = NEVER_H
        self._shortest = _SHORTEST_H
        self._own = np.zeros(OF_JOB, dtype=np.float32)
        self._hours = np.zeros(columns.nodes * columns.gpus)
        """Hours until each GPU comes free, rising within a server."""
        self._free = np.zeros(columns.nodes, dtype=np.int64)
        """Free GPUs of each server."""
        self._absent = np.zeros(columns.nodes, dtype=np.int64)
        self._total = 0
        """Free GPUs of all servers."""
        self._empties = 0
        """Servers of which all GPUs are free."""
        self._large = 0
        """Candidates of a whole server or more."""
        self._missing = 0
        """Empty servers that the first of them is short of."""
        self._patience = 0.0
        """Log of the longest wait among them."""
        self._queue = 0.0
        """Log of the waiting jobs that are not candidates."""
        self._server = 0
        """Server where packing puts the first GPUs of the present job."""

    def rows(self, states: FloatArray) -> FloatArray:
        """Return a row for each state (batch, N M + (k + 2) J + 4)."""
        made = np.zeros((len(states), self._size), dtype=np.float32)
        for place in range(len(states)):
            self.row(states[place], made[place])
        return made

    def row(self, state: FloatArray, row: FloatArray) -> None:
        """Fill a row, which is all 0."""
        self.look(state)
        at = 0
        for node in range(self._nodes):
            for gpu in range(self._gpus):
                row[at] = log1p(self._hours[node * self._gpus + gpu])
                at += 1
            row[at + FREE_SHARE] = float(self._free[node]) / self._gpus
            row[at + IS_EMPTY] = 1.0 if self._free[node] == self._gpus else 0.0
            row[at + ABSENT_SHARE] = float(self._absent[node]) / self._gpus
            at += OF_SERVER
        for place in range(self._candidates):
            self.job(state, place, row, self._jobs_at + place * self._of_job)
            row[self._first_at + place] = self._server
        begin = self._state_jobs + self._candidates * self._job_numbers
        for number in range(self._rest_numbers):
            row[self._rest_at + number] = log1p(float(state[begin + number]))
        row[self._rest_at + self._rest_numbers] = float(self._total) / (self._nodes * self._gpus)

    def action(self, rule: Rule, state: FloatArray, mask: Flags) -> int:
        """Return a rule's action: start the possible job with the largest sum of rule times features; none if all are below 0."""
        self.look(state)
        own, best, action = self._own, 0.0, 0
        goes = mask[0] != 0
        for place in range(self._candidates):
            if mask[place + 1] != 0:
                for number in range(self._of_job):
                    own[number] = 0.0
                self.job(state, place, own, 0)
                worth = 0.0
                for number in range(self._of_job):
                    worth += float(own[number]) * float(rule[number])
                if worth > best or not goes:
                    best, action, goes = worth, place + 1, True
        return action

    def look(self, state: FloatArray) -> None:
        """Take in servers and queue of this state, which `job` uses from now on."""
        self._total = self._empties = 0
        for node in range(self._nodes):
            self._look_at(state, node)
        self._look_at_queue(state)

    def _look_at(self, state: FloatArray, node: int) -> None:
        hours = self._hours
        begin = node * self._gpus
        free = absent = 0
        for at in range(begin, begin + self._gpus):
            hour = float(state[at])
            if hour == 0.0:
                free += 1
            elif hour < 0.0:
                absent += 1
                hour = self._never
            elif hour >= self._never:
                hour = self._never - 1e-3  # as good as never, but there: it is not free, and not absent
            # The hours are nearly sorted.
            place = at
            while place > begin and hours[place - 1] > hour:
                hours[place] = hours[place - 1]
                place -= 1
            hours[place] = hour
        self._free[node] = free
        self._absent[node] = absent
        self._total += free
        if free == self._gpus:
            self._empties += 1

    def _look_at_queue(self, state: FloatArray) -> None:
        self._large = self._missing = 0
        self._patience = 0.0
        longest = 0.0
        for place in range(self._candidates):
            begin = self._state_jobs + place * self._job_numbers + self._placements
            gpus = self._asked(state, place)
            if gpus >= self._gpus:
                if self._large == 0:
                    self._missing = max((gpus + self._gpus - 1) // self._gpus - self._empties, 0)
                self._large += 1
                longest = max(longest, float(state[begin + 1]))
        self._patience = log1p(longest)
        self._queue = log1p(float(state[self._state_jobs + self._candidates * self._job_numbers]))

    def _asked(self, state: FloatArray, place: int) -> int:
        """Return the GPUs of that candidate; 0 where there is none."""
        share = float(state[self._state_jobs + place * self._job_numbers + self._placements])
        return int(share * self._gpus + 0.5)

    def job(self, state: FloatArray, place: int, row: FloatArray, at: int) -> None:
        """Fill numbers `at` to `at` + OF_JOB of a row, which are 0, with those of that candidate."""
        gpus, width = self._asked(state, place), self._gpus
        begin = self._state_jobs + place * self._job_numbers
        is_whole = self._find(gpus)
        if gpus == 0:
            return
        ideal, apart = float(state[begin]), float(state[begin + 1])
        waited = float(state[begin + self._placements + 1])
        is_small = gpus <= width
        is_spread = is_small and not is_whole
        now = apart if is_spread else ideal
        least = max(ideal, self._shortest)
        size, length = log2(float(gpus)) / 2.0, log(least)
        row[at + LOG_TIME] = length
        row[at + LOG_TIME_NOW] = log(max(now, self._shortest))
        row[at + GPUS] = float(gpus) / width
        row[at + LOG_SPREAD_LOSS] = log(min(max(apart / least, 1.0), 10.0))
        row[at + LOG_RELATIVE_WAIT] = log1p(waited / least)
        row[at + LOG_WAIT] = log1p(waited)
        row[at + TIME_LOST] = min(now - ideal, 10.0) / 4.0
        if is_small:
            local = self._comes_free(gpus)
            row[at + LOG_UNTIL_LOCAL] = log1p(local)
            if is_spread:
                row[at + IS_SPREAD] = 1.0
                row[at + GAIN_OF_STARTING] = min(max(now - ideal - local, -8.0), 8.0) / 4.0
        self._on_server(row, at, gpus, now)
        row[at + LOG_GPUS] = size
        row[at + QUEUE_TIMES_LOG_TIME] = self._queue * length
        row[at + QUEUE_TIMES_LOG_GPUS] = self._queue * size
        flag = 0 if gpus == 1 else 1 if gpus == 2 else 2 if gpus <= 4 else 3 if is_small else 4
        row[at + SIZE_FLAGS + flag] = 1.0

    def _on_server(self, row: FloatArray, at: int, gpus: int, now: float) -> None:
        """Fill the features of the server that packing takes first, and of the large candidates."""
        width, clears = self._gpus, self._cleared()
        room = int(self._free[self._server])
        is_empty = room == width
        outlasts = min(max(now - clears, -8.0), 8.0) / 4.0
        row[at + OUTLASTS] = outlasts
        row[at + LOG_UNTIL_CLEAR] = log1p(clears)
        if not is_empty:
            row[at + OUTLASTS_OTHERS] = max(outlasts, 0.0)
            row[at + GPUS_LEFT] = float(max(room - gpus, 0)) / width
        if gpus < width:
            self._beside_large(row, at, is_empty, max(outlasts, 0.0))
        else:
            row[at + LARGE_QUEUE] = self._queue
            row[at + LARGE_MISSING] = float(min(max((gpus + width - 1) // width - self._empties, 0), 3)) / 2.0

    def _beside_large(self, row: FloatArray, at: int, is_empty: bool, outlasts: float) -> None:
        """Fill the features by which a small job delays large ones."""
        large, missing = float(self._large), float(min(self._missing, 3)) / 2.0
        row[at + SMALL_LARGE] = min(large, 5.0) / 4.0
        row[at + SMALL_MISSING] = missing
        if self._large:
            row[at + SMALL_LARGE_WAIT] = self._patience
            row[at + SMALL_LARGE_QUEUE] = self._queue
        if is_empty:
            row[at + BREAKS_EMPTY] = 1.0
            row[at + BREAKS_ONE_OF_TWO] = 1.0 if self._empties <= 2 else 0.0
            row[at + BREAKS_LARGE] = min(large, 3.0)
            row[at + BREAKS_QUEUE] = self._queue
            row[at + BREAKS_MISSING] = missing
            if self._large:
                row[at + BREAKS_LARGE_WAIT] = self._patience
                row[at + BREAKS_LARGE_QUEUE] = self._queue
        elif self._large:
            row[at + SHARES_OUTLASTS] = outlasts

    def _find(self, gpus: int) -> bool:
        """Set `_server` to where packing takes GPUs first: the best fit if the job fits on one server, else the freest server.

        Ties go to the lowest number. Returns whether the job fits on one server. This is the first step of
        `policies.placement.dividing.packed`, written again because it is compiled.
        """
        best = freest = -1
        for node in range(self._nodes):
            free = self._free[node]
            if free >= gpus and (best < 0 or free < self._free[best]):
                best = node
            if freest < 0 or free > self._free[freest]:
                freest = node
        self._server = best if best >= 0 else freest
        return best >= 0

    def _comes_free(self, gpus: int) -> float:
        """Return the hours until some server has so many free GPUs."""
        soonest = self._never
        for node in range(self._nodes):
            soonest = min(soonest, self._hours[node * self._gpus + gpus - 1])
        return soonest

    def _cleared(self) -> float:
        """Return the hours until all GPUs of `_server` that are present are free."""
        latest = 0.0
        begin = self._server * self._gpus
        for at in range(begin, begin + self._gpus):
            hour = self._hours[at]
            if latest < hour < self._never:
                latest = hour
        return latest
