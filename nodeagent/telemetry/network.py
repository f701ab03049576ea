"""Traffic of network interfaces and InfiniBand ports: counters in /sys, told as rates between two readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from nodeagent.telemetry import sysfs
from nodeagent.wire.report import NicReading

_LOOPBACK = 772  # ARPHRD_LOOPBACK
_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count in words of 4 bytes, by the InfiniBand specification
_NARROW = 2**32
_FASTER_THAN_TOLD = 1.25
"""A link may carry a little more than its speed within one reading: bursts, and clocks that differ."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface or port, and where its files are."""

    name: str
    kind: Literal["ethernet", "infiniband"]
    folder: Path

    @property
    def speed_bits_per_s(self) -> int | None:
        """Now: links are negotiated anew."""
        if self.kind == "infiniband":
            return sysfs.infiniband_bits_per_s(self.folder)
        return sysfs.ethernet_bits_per_s(self.folder)

    @property
    def numa_node(self) -> int | None:
        """Of the card that it is on."""
        card = self.folder.parent.parent if self.kind == "infiniband" else self.folder
        return sysfs.numa_node(card / "device")


@dataclass(frozen=True, slots=True)
class _Counters:
    """One reading. `identity` changes when the interface was made anew, and its counters began at 0."""

    time_ns: int
    identity: int | None
    rx_bytes: int | None
    tx_bytes: int | None


class NicCounters:
    """Rates of every interface since the reading before.

    Invariant: a rate is told only where both readings are of the same counter; a counter that fell is taken for one that
    wrapped only if the link could have carried that much.
    """

    def __init__(self, wanted: Sequence[str] = (), root: Path = Path("/sys")) -> None:
        self._wanted = tuple(wanted)
        self._root = root
        self._before: dict[str, _Counters] = {}

    def read(self, now_ns: int) -> tuple[NicReading, ...]:
        """A row per interface that is there; the first reading of each has no rates."""
        found = interfaces(self._root, self._wanted)
        now = {interface.name: _read(interface, now_ns) for interface in found}
        rows = tuple(_row(interface, self._before.get(interface.name), now[interface.name]) for interface in found)
        self._before = now
        return rows


def interfaces(root: Path, wanted: Sequence[str] = ()) -> list[Interface]:
    """Those whose name matches one of `wanted`; without any, those with hardware, or else all but loopback and bridges."""
    ethernet = [Interface(folder.name, "ethernet", folder) for folder in sysfs.folders(root / "class/net")]
    # Slaves of a bond are counted, not the bond; /sys/class/net also holds the plain file bonding_masters.
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
    """Loopback, and what only adds up others."""
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
    return NicReading(interface.name, interface.kind, speed, _up(interface), *rates)


def rate(
    before: int | None, now: int | None, interval_s: float, speed_bits_per_s: int | None, narrow: int = _NARROW
) -> float | None:
    """Bytes per second between two values of a counter; None = cannot be told.

    `narrow` is where a narrow counter wraps. Counters of 64 bits do not wrap in the life of a machine.
    """
    if before is None or now is None or interval_s <= 0:
        return None
    if now >= before:
        return (now - before) / interval_s
    if before >= narrow or speed_bits_per_s is None:
        return None
    wrapped = (now + narrow - before) / interval_s
    return wrapped if wrapped * 8 <= speed_bits_per_s * _FASTER_THAN_TOLD else None


def _up(interface: Interface) -> bool | None:
    if interface.kind == "infiniband":
        state = sysfs.text(interface.folder / "state")  # "4: ACTIVE"
        return None if state is None else "ACTIVE" in state
    state = sysfs.text(interface.folder / "operstate")
    return None if state in {None, "unknown"} else state == "up"
