"""Counters of the job socket, and the reasons for which connections were refused or closed."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from nodeagent.wire.report import SocketCounters

log = structlog.get_logger(__name__)

_LOG_REASONS_EVERY_S = 60.0
_MAX_REASONS = 32
"""Reasons that the log tells apart; all others are counted together."""


@dataclass(slots=True)
class Counters:
    """Counts since the agent started. Invariant: the reasons take bounded memory, and at most one line of the log a minute."""

    connections: int = 0
    """Open now."""
    accepted: int = 0
    refused: int = 0
    closed_for_cause: int = 0
    frames: int = 0
    unknown_frames: int = 0
    dropped_sends: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Number of refusals and closings by reason, since they were last logged. Bound: `_MAX_REASONS`, and one for the others."""
    _logged_ns: int = 0

    def count_accepted(self) -> None:
        """Count a connection that was accepted."""
        self.connections += 1
        self.accepted += 1

    def count_refused(self, reason: str) -> None:
        """Count a connection that was refused."""
        self.refused += 1
        self.count_reason(reason)

    def count_closed(self) -> None:
        """Count a connection less."""
        self.connections -= 1

    def count_closed_for_cause(self, reason: str) -> None:
        """Count the cause for which a connection is closed; `count_closed` follows."""
        self.closed_for_cause += 1
        self.count_reason(reason)

    def count_frame(self, *, known: bool) -> None:
        """Count a frame; `known` is False for one of a type that this version does not know."""
        self.frames += 1
        self.unknown_frames += not known

    def count_dropped_send(self) -> None:
        """Count a frame to a job that was not sent."""
        self.dropped_sends += 1

    def count_reason(self, reason: str) -> None:
        """Count a refusal or a closing under this reason."""
        if reason not in self.reasons and len(self.reasons) >= _MAX_REASONS:
            reason = "other reasons"
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def log_reasons(self, now_ns: int) -> None:
        """Log the reasons and start them again, when there are any and a minute has passed."""
        if self.reasons and now_ns - self._logged_ns > _LOG_REASONS_EVERY_S * 1e9:
            log.warning("job_socket_refused", reasons=dict(self.reasons))
            self.reasons.clear()
            self._logged_ns = now_ns

    def report(self) -> SocketCounters:
        """Return the row of a report."""
        return SocketCounters(
            connections=self.connections,
            accepted=self.accepted,
            refused=self.refused,
            closed_for_cause=self.closed_for_cause,
            frames=self.frames,
            unknown_frames=self.unknown_frames,
            dropped_sends=self.dropped_sends,
        )
