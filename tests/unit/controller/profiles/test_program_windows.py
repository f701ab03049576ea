"""Windows of a job whose batch script runs programs one after the other, from the frames of its processes to the throughputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller.profiles.sightings import Arrival, sighting_of
from controller.profiles.windows import Sample, Throughput, window_throughputs
from nodeagent.uplink.encode import job_message
from tests.unit.nodeagent.jobsocket.node import Node

WINDOW_S = 30.0
REPORT_S = 5


class Job:
    """A job on one node, whose agent reports every five seconds."""

    def __init__(self) -> None:
        made: Any = Node
        self.node: Any = made()
        self.samples: list[Sample] = []
        self.pid = 200

    def runs(self, per_s: int, seconds: int, signature: str) -> None:
        """Run a program for that long, which ends in good order."""
        self.pid += 100
        process = self.node.connect(rank=0, world_size=1, pid=self.pid)
        for second in range(seconds):
            self.node.train([process], per_s, 1)
            if second == 1:
                self.node.say(process, "model", signature=signature * 32)
            self._report()
        self.node.close(process, bye=True)

    def pauses(self, seconds: int) -> None:
        """Let time pass between two programs."""
        for _ in range(seconds):
            self.node.now_s += 1
            self._report()

    def _report(self) -> None:
        if self.node.now_s % REPORT_S:
            return
        report: Any = SimpleNamespace(time_s=self.node.now_s, monotonic_ns=self.node.now_ns)
        sighting = sighting_of(Arrival("n1", "run", job_message(self.node.row(), report), self.node.now_s))
        assert sighting is not None and sighting.sample is not None
        self.samples.append(sighting.sample)

    def measured(self) -> list[Throughput]:
        """Return the throughputs of all windows."""
        first_s, last_s = self.samples[0].time_s, self.samples[-1].time_s
        starts = [
            first_s // WINDOW_S * WINDOW_S + WINDOW_S * number
            for number in range(int((last_s - first_s) // WINDOW_S) + 2)
        ]
        return [found for start_s in starts for found in window_throughputs(self.samples, start_s, WINDOW_S, {})]


def test_the_pause_between_two_runs_of_a_program_is_no_slow_step() -> None:
    # given a program that is run twice, as in a cross-validation, with a pause that is short beside a window
    job = Job()
    job.runs(10, 92, "aa")
    job.pauses(8)
    job.runs(10, 60, "aa")
    # then every window has the speed of the program, and that with the pause is left out
    found = job.measured()
    assert {round(item.steps_per_s, 6) for item in found} == {10.0}
    assert len(found) == 4


def test_windows_of_two_programs_belong_to_their_own_models() -> None:
    # given a program of 10 steps/s, and one of 2 steps/s after it
    job = Job()
    job.runs(10, 75, "aa")
    job.pauses(15)
    job.runs(2, 120, "bb")
    # then no speed of the second is filed under the first one's model
    found = {(item.trained.signature[:2], round(item.steps_per_s, 6)) for item in job.measured()}
    assert found == {("aa", 10.0), ("bb", 2.0)}
