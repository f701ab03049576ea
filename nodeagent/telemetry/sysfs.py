"""Small readers of /sys: what is missing or unreadable is None."""

from __future__ import annotations

import re
from pathlib import Path

_MAX_CPUS = 65_536
_GIGABITS = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


def text(path: Path) -> str | None:
    """A file's text without blanks around it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # also what a NIC's speed answers while its cable is out
        return None


def number(path: Path) -> int | None:
    """A file's whole number."""
    found = text(path)
    try:
        return int(found) if found is not None else None
    except ValueError:
        return None


def numa_node(device: Path) -> int | None:
    """Memory node of a device; the kernel says -1 where it does not know."""
    found = number(device / "numa_node")
    return found if found is not None and found >= 0 else None


def ethernet_bits_per_s(interface: Path) -> int | None:
    """Speed of a network interface; -1 stands for not known."""
    megabits = number(interface / "speed")
    return megabits * 1_000_000 if megabits is not None and megabits > 0 else None


def infiniband_bits_per_s(port: Path) -> int | None:
    """Speed of a port: "100 Gb/sec (4X EDR)"."""
    found = _GIGABITS.match(text(port / "rate") or "")
    return round(float(found[1]) * 1e9) if found else None


def cpu_list(text: str, below: int = _MAX_CPUS) -> tuple[int, ...]:
    """0-3,8 → 0, 1, 2, 3, 8. Raises ValueError, also for a number that is not below that."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if numbers.start < 0 or numbers.stop > below or len(found) > below:
            raise ValueError(f"{part!r}: not numbers below {below}")
        found.extend(numbers)
    return tuple(found)


def folders(path: Path) -> list[Path]:
    """Entries of a folder, by name; none when it is not there."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []
