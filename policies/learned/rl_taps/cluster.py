"""The cluster of RL-TAPS: eight machines of four GPUs in four racks (table 1, section 5.1), as a TOML file has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLUSTER: Mapping[str, Any] = {
    "nodes": [{"count": 2, "gpus": 4, "sockets": 2, "rack": f"r{rack}"} for rack in range(4)],
    "network": {
        "kind": "racks",
        "nics": 2,
        "nic_gbs": 12.5,
        "uplink_gbs": 6.25,
        "pcie_gbs": 40.0,
        "socket_gbs": 38.5,
    },
}
"""GPUs in pairs below two sockets, each of which has a card of its own."""
