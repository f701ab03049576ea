"""Fake trees of /sys and /proc."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plant(root: Path, files: Mapping[str, object]) -> Path:
    """Write files below a folder: path → text; a path that ends in / is a folder."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    return root


def nic(
    name: str, rx: int = 0, tx: int = 0, speed: int = 100_000, *, index: int = 2, hardware: bool = True
) -> dict[str, object]:
    """Files of one network interface below /sys."""
    folder = f"class/net/{name}"
    return {
        f"{folder}/statistics/rx_bytes": rx,
        f"{folder}/statistics/tx_bytes": tx,
        f"{folder}/speed": speed,
        f"{folder}/ifindex": index,
        f"{folder}/type": 1,
        f"{folder}/operstate": "up",
    } | ({f"{folder}/device/numa_node": 1} if hardware else {})


def port(rx_words: int, tx_words: int, card: str = "mlx5_0") -> dict[str, object]:
    """Files of an InfiniBand port below /sys, as the kernel writes them."""
    folder = f"class/infiniband/{card}/ports/1"
    return {
        f"{folder}/counters/port_rcv_data": rx_words,
        f"{folder}/counters/port_xmit_data": tx_words,
        f"{folder}/rate": "100 Gb/sec (4X EDR)",
        f"{folder}/state": "4: ACTIVE",
        f"class/infiniband/{card}/device/numa_node": 0,
    }


def stat(
    pid: int,
    *,
    name: str = "python",
    parent: int = 1,
    ticks: int = 0,
    start: int = 1,
    pages: int = 0,
    blocked: int = 0,
    ignored: int = 0,
    caught: int = 0,
) -> str:
    """A line of /proc/PID/stat, up to the masks of signals."""
    words = [pid, f"({name})", "S", parent, *[0] * 9, ticks, 0, 0, 0, 20, 0, 1, 0, start, 0, pages]
    words += [*[0] * 7, blocked, ignored, caught]
    return " ".join(str(word) for word in words)


def process(
    pid: int, cgroup: str = "0::/", environment: Mapping[str, str] | None = None, **numbers: Any
) -> dict[str, object]:
    """Files of one process below /proc."""
    words = "\0".join(f"{key}={value}" for key, value in (environment or {}).items())
    return {
        f"{pid}/stat": stat(pid, **numbers),
        f"{pid}/cgroup": cgroup,
        f"{pid}/environ": words + "\0",
        f"{pid}/status": "Name:\tpython\nUid:\t1000\t1000\t1000\t1000",
    }
