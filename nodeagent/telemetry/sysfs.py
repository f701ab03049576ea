"""Small readers of /sys. A file that is missing or unreadable gives None."""

from __future__ import annotations

import re
from pathlib import Path

_MAX_CPUS = 65_536
_GIGABITS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec")


def text(path: Path) -> str | None:
    """Return the text of a file without surrounding blanks."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # the speed of a NIC without a cable gives an error, too
        return None


def number(path: Path) -> int | None:
    """Return the whole number in a file."""
    found = text(path)
    try:
        return int(found) if found is not None else None
    except ValueError:
        return None


def numa_node(device: Path) -> int | None:
    """Return the NUMA node of a device; the kernel writes -1 if it does not know it."""
    found = number(device / "numa_node")
    return found if found is not None and found >= 0 else None


def ethernet_bits_per_s(interface: Path) -> int | None:
    """Return the speed of a network interface; the kernel writes -1 if it does not know it."""
    megabits = number(interface / "speed")
    return megabits * 1_000_000 if megabits is not None and megabits > 0 else None


def infiniband_bits_per_s(port: Path) -> int | None:
    """Return the speed of an InfiniBand port, from a text like "100 Gb/sec (4X EDR)"."""
    found = _GIGABITS.match(text(port / "rate") or "")
    return round(float(found[1]) * 1e9) if found else None


def cpu_list(text: str, below: int = _MAX_CPUS) -> tuple[int, ...]:
    """Parse "0-3,8" as 0, 1, 2, 3, 8. Raises ValueError for invalid text and for numbers from `below` on."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if numbers.start < 0 or numbers.stop > below or len(found) > below:
            raise ValueError(f"{part!r}: not numbers below {below}")
        found.extend(numbers)
    return tuple(found)


def folders(path: Path) -> list[Path]:
    """Return the entries of a folder, by name; none when it does not exist."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []
