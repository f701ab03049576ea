"""The program that takes the place of every slurmd: it confirms each request of slurmctld, and does nothing else.

It speaks through Slurm's own library, so that it needs no code for Slurm's messages and their signatures. A node whose
requests are confirmed counts as idle, and a job that is started on it runs until it is cancelled or its time is over.
"""

from __future__ import annotations

import ctypes
import socket
import sys

PORT = 7000
"""Port of all nodes; each has an address of its own."""
LIBRARY = "/usr/lib/{}/slurm-wlm/libslurmfull.so"
_MESSAGE_BYTES = 4096
"""More than Slurm's structure of a message takes (about 400 bytes in 22.05)."""
_RECEIVE_MS = 10_000


def answer_for_ever(slurm_conf: str) -> None:
    """Confirm every request that arrives at the port, one after the other."""
    slurm = ctypes.CDLL(LIBRARY.format(sys.implementation._multiarch), mode=ctypes.RTLD_GLOBAL)
    slurm.slurm_init(slurm_conf.encode())
    with socket.create_server(("", PORT), backlog=4096) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                message = ctypes.create_string_buffer(_MESSAGE_BYTES)
                slurm.slurm_msg_t_init(message)
                if slurm.slurm_receive_msg(connection.fileno(), message, _RECEIVE_MS) == 0:
                    slurm.slurm_send_rc_msg(message, 0)
                slurm.slurm_free_msg_members(message)


if __name__ == "__main__":
    answer_for_ever(sys.argv[1])
