"""Settings of the service for node agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentsSettings:
    """Settings of the agents' service."""

    address: str
    """host:port, or unix:///path (mode 0600)."""
    uids: frozenset[int] = frozenset({0})
    """Users that may run agents: root, and SlurmUser."""
    certificate: Path | None = None
    """PEM file of the certificate chain for TLS; None: no TLS."""
    private_key: Path | None = None
    """PEM file of the certificate's key."""
    max_nodes: int = 4096
    """Maximum number of connected agents."""
    max_opening: int = 256
    """Maximum number of calls that have begun and have not sent their hello."""
    max_opening_a_host: int = 16
    """Maximum number of such calls of one machine."""
    max_connections_a_host: int = 32
    """Maximum number of connections of one machine that carry no agent."""
    hello_timeout_s: float = 10.0
    """Time for a call to send its hello."""
    beat_s: float = 8.0
    """Time after which the last acknowledgement is repeated when there was no other."""
    silence_s: float = 30.0
    """Time without a message after which a stream is closed."""
    rate_per_s: float = 200.0
    """Messages of one agent that are read per second, averaged over a long time; more messages wait."""
    burst: int = 2000
    """Messages of one agent that may be read at once."""
    report_interval_s: float = 5.0
    """Interval between reports, which every agent receives at its welcome."""
    profile_steps: int = 20
    """Number of steps of a job's beginning that agents profile; also part of the welcome."""
