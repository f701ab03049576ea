"""Servers that listen, and sockets that are only there."""

import socket
from pathlib import Path

from slurm.processes import accepts


def test_a_socket_that_is_bound_accepts_only_once_it_listens(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    assert not accepts(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert path.exists()
        assert not accepts(path)
        server.listen()
        assert accepts(path)
    assert not accepts(path)
