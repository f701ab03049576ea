"""Traffic of network interfaces and InfiniBand ports: rates between two readings of the counters in /sys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import structlog

from nodeagent.identity.bounded_read import BoundedReader
from nodeagent.telemetry import sysfs
from nodeagent.wire.report import NicReading

log = structlog.get_logger(__name__)

_LOOPBACK = 772  # ARPHRD_LOOPBACK
_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count in words of 4 bytes, by the InfiniBand specification
_NARROW = 2**32
_SPEED_MARGIN = 1.25
"""A link may carry a little more than its speed between two readings: bursts, and clocks that differ."""
_TIMEOUT_S = 1.0
_SLOW_S = 10.0
"""Total time of slow readings at once; for long they may take a fiftieth of the time."""
ROOT = 0
"""User of the reads: no job's user can delay them."""

_ETHERNET_EVENTS = ("statistics/rx_errors", "statistics/tx_errors", "statistics/rx_dropped", "statistics/tx_dropped")
_INFINIBAND_EVENTS = (
    # The port had data to send, and no credits of the other side; in ticks of the adapter.
    "counters/port_xmit_wait", "counters/port_xmit_discards", "counters/port_rcv_errors", "counters/symbol_error",
    "counters/link_error_recovery", "counters/link_downed", "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    # RoCE: packets marked by switches, and notifications of congestion that were sent, and obeyed.
    "hw_counters/np_ecn_marked_roce_packets", "hw_counters/np_cnp_sent", "hw_counters/rp_cnp_handled",
    "hw_counters/rp_cnp_ignored", "hw_counters/out_of_sequence", "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err", "hw_counters/roce_adp_retrans",
)  # fmt: skip
EVENTS = {"ethernet": _ETHERNET_EVENTS, "infiniband": _INFINIBAND_EVENTS}
"""Files of counters below the folder of an interface or port, by its kind."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface or port, and the folder of its files."""

    name: str
    kind: Literal["ethernet", "infiniband"]
    folder: Path

    @property
    def speed_bits_per_s(self) -> int | None:
        """The present speed: links can be renegotiated."""
        if self.kind == "infiniband":
            return sysfs.infiniband_bits_per_s(self.folder)
        return sysfs.ethernet_bits_per_s(self.folder)

    @property
    def numa_node(self) -> int | None:
        """NUMA node of its card."""
        card = self.folder.parent.parent if self.kind == "infiniband" else self.folder
        return sysfs.numa_node(card / "device")


@dataclass(frozen=True, slots=True)
class _Counters:
    """One reading. `identity` changes when the interface was created again and its counters began at 0."""

    time_ns: int
    identity: int | None
    rx_bytes: int | None
    tx_bytes: int | None


class NicCounters:
    """Rates of every interface since the last reading.

    Invariant: there is a rate only if both readings are of the same counter; a counter that fell counts as wrapped only if the
    link could have carried that much. A reading returns within `_TIMEOUT_S`: drivers ask their cards for some counters, which may
    hang.
    """

    def __init__(self, wanted: Sequence[str] = (), root: Path = Path("/sys")) -> None:
        self._wanted = tuple(wanted)
        self._root = root
        self._before: dict[str, _Counters] = {}
        """Bound: the interfaces at the last reading."""
        self._reader = BoundedReader(_TIMEOUT_S, slow_s=_SLOW_S)
        self._silent = False
        """The last reading was not answered in time, which was logged."""

    def read(self, now_ns: int) -> tuple[NicReading, ...]:
        """Return a row for each present interface; its first row has no rates. Empty if the drivers do not answer in time."""
        before = self._before
        try:
            rows, self._before = self._reader.call(ROOT, lambda: self._rows(before, now_ns))
        except TimeoutError as error:
            if not self._silent:
                log.warning(
                    "nics_not_read", problem=str(error), effect="reports have no rows of network interfaces meanwhile"
                )
            self._silent = True
            return ()
        self._silent = False
        return rows

    def _rows(self, before: dict[str, _Counters], now_ns: int) -> tuple[tuple[NicReading, ...], dict[str, _Counters]]:
        """Return the rows, and the counters for the next ones. Changes nothing: it may end when it is no longer waited for."""
        found = interfaces(self._root, self._wanted)
        now = {interface.name: _read(interface, now_ns) for interface in found}
        return tuple(_row(interface, before.get(interface.name), now[interface.name]) for interface in found), now


def interfaces(root: Path, wanted: Sequence[str] = ()) -> list[Interface]:
    """Return the interfaces that match `wanted`; if it is empty, those with hardware, or else all but loopback and bridges."""
    ethernet = [Interface(folder.name, "ethernet", folder) for folder in sysfs.folders(root / "class/net")]
    # The slaves of a bond are counted, not the bond; /sys/class/net also contains the plain file bonding_masters.
    ethernet = [nic for nic in ethernet if (nic.folder / "statistics").is_dir() and not _is_sum(nic.folder)]
    ports = [
        Interface(f"{card.name}/{port.name}", "infiniband", port)
        for card in sysfs.folders(root / "class/infiniband")
        for port in sysfs.folders(card / "ports")
    ]
    if wanted:
        return [nic for nic in (*ethernet, *ports) if any(fnmatchcase(nic.name, pattern) for pattern in wanted)]
    hardware = [nic for nic in ethernet if (nic.folder / "device").exists()]
    return [*(hardware or ethernet), *ports]


def _is_sum(folder: Path) -> bool:
    """Return True for loopback, and for interfaces that add up others."""
    return sysfs.number(folder / "type") == _LOOPBACK or any(
        (folder / inner).exists() for inner in ("bridge", "bonding")
    )


def _read(interface: Interface, now_ns: int) -> _Counters:
    if interface.kind == "infiniband":
        counters = interface.folder / "counters"
        words = sysfs.number(counters / "port_rcv_data"), sysfs.number(counters / "port_xmit_data")
        received, sent = (None if count is None else count * _WORD_BYTES for count in words)
        return _Counters(now_ns, None, received, sent)
    statistics = interface.folder / "statistics"
    return _Counters(
        now_ns,
        sysfs.number(interface.folder / "ifindex"),
        sysfs.number(statistics / "rx_bytes"),
        sysfs.number(statistics / "tx_bytes"),
    )


def _row(interface: Interface, before: _Counters | None, now: _Counters) -> NicReading:
    speed = interface.speed_bits_per_s
    narrow = _NARROW * (_WORD_BYTES if interface.kind == "infiniband" else 1)
    rates: list[float | None] = [None, None]
    if before is not None and before.identity == now.identity:
        interval_s = (now.time_ns - before.time_ns) / 1e9
        pairs = (before.rx_bytes, now.rx_bytes), (before.tx_bytes, now.tx_bytes)
        rates = [rate(first, last, interval_s, speed, narrow) for first, last in pairs]
    received, sent = rates
    return NicReading(interface.name, interface.kind, speed, _up(interface), received, sent, _events(interface))


def _events(interface: Interface) -> tuple[tuple[str, int], ...]:
    paths = EVENTS[interface.kind]
    counted = ((path.rpartition("/")[2], sysfs.number(interface.folder / path)) for path in paths)
    return tuple((name, count) for name, count in counted if count is not None and count >= 0)


def rate(
    before: int | None, now: int | None, interval_s: float, speed_bits_per_s: int | None, narrow: int = _NARROW
) -> float | None:
    """Return the bytes per second between two values of a counter; None = not known.

    A narrow counter wraps at `narrow`. Counters of 64 bits do not wrap in the life of a machine.
    """
    if before is None or now is None or interval_s <= 0:
        return None
    if now >= before:
        return (now - before) / interval_s
    if before >= narrow or speed_bits_per_s is None:
        return None
    wrapped = (now + narrow - before) / interval_s
    return wrapped if wrapped * 8 <= speed_bits_per_s * _SPEED_MARGIN else None


def _up(interface: Interface) -> bool | None:
    if interface.kind == "infiniband":
        state = sysfs.text(interface.folder / "state")  # "4: ACTIVE"
        return None if state is None else "ACTIVE" in state
    state = sysfs.text(interface.folder / "operstate")
    return None if state in {None, "unknown"} else state == "up"
