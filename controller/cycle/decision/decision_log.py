"""Decisions in the journal, and events when another policy decides."""

from __future__ import annotations

from controller.base.clock import Clock
from controller.base.events import EventLog
from controller.base.text import describe_placement
from controller.cycle.decision.decider import Decided
from controller.observe.observer import Observation
from controller.state.journal import DecisionEntry, Journal
from policies.wire.messages import state_digest


class DecisionLog:
    """Records decisions that start a job, or that another policy makes than before; repetitions without an effect are left
    out."""

    def __init__(self, journal: Journal, events: EventLog, clock: Clock) -> None:
        self._journal = journal
        self._events = events
        self._clock = clock
        self._last_policy = ""

    def record(self, observation: Observation, decided: Decided) -> None:
        """Record this decision, unless it repeats the one before without an effect. Raises JournalError."""
        if not decided.plan.starts and decided.policy == self._last_policy:
            return
        names = observation.state.nodes.names
        placed = [
            (
                observation.rows[start.row].key,
                describe_placement((names[node] for node in start.placement.nodes), start.placement.gpus),
                start.reason,
            )
            for start in decided.plan.starts
        ]
        entry = DecisionEntry(
            time_s=self._clock.now(),
            sequence=observation.state.sequence,
            digest=state_digest(observation.state),
            policy=decided.policy,
            latency_s=decided.latency_s,
            problem=decided.problem,
        )
        self._journal.record_decision(entry, placed)
        # After the journal has it: where it cannot be written, the next cycle repeats all of this.
        if decided.policy != self._last_policy and decided.problem:
            self._events.add("fallback", "", f"{decided.policy} decides: {decided.problem}")
        elif decided.policy != self._last_policy:
            self._events.add("policy", "", f"{decided.policy} decides")
        self._last_policy = decided.policy
