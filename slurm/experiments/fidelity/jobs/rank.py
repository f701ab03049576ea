"""The program started by srun: it requests this task's rank from the node's warm process and waits: `rank.py FOLDER PLAN.json`."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path


def main() -> int:
    """Exit status: 0 = the rank has trained to its end."""
    folder, plan = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    place = {
        "rank": int(os.environ["SLURM_PROCID"]),
        "world_size": int(os.environ["SLURM_NTASKS"]),
        "address": os.environ["MASTER_ADDR"],
        "port": int(os.environ["MASTER_PORT"]),
    }
    request = {"plan": plan, "place": place, "interface": "eth0"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as warm:
        warm.connect(str(folder / f"{os.environ['SLURMD_NODENAME']}.sock"))
        socket.send_fds(warm, [json.dumps(request).encode()], [2])
        return 0 if warm.recv(1) == b"0" else 1


if __name__ == "__main__":
    sys.exit(main())
