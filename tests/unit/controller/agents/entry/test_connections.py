"""Connections without an agent are closed, and no other file of the process, whatever gets their numbers meanwhile."""

import os
import select
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from controller.agents.entry.connections import Connections
from tests.unit.open_files import open_files


def leading_to(*files: int) -> frozenset[str]:
    """Return the open files that lead to where these do: others may come and go meanwhile."""
    ends = {str(Path(f"/proc/self/fd/{file}").readlink()) for file in files}
    return frozenset(each for each in open_files() if each.partition(" ")[2] in ends)


def numbers(files: Iterable[str]) -> set[str]:
    return {each.partition(" ")[0] for each in files}


def test_without_an_agent_no_connection_stays_where_none_may() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0],
    ):
        assert Connections(listener.getsockname()[1], 0, 0, list).close_excess(()) == {"127.0.0.1": 1}
        client.settimeout(60.0)
        assert client.recv(1) == b""


def test_a_number_that_passes_to_another_file_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is closed at the last moment, and the end of a pipe gets its number: nothing of the pipe is kept or closed."""
    reading, writing = os.pipe()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as first,
        socket.create_connection(listener.getsockname()) as second,
    ):
        ended, stays = listener.accept()[0], listener.accept()[0]
        assert ended.getpeername() == first.getsockname()
        number, duplicate = ended.fileno(), os.dup
        passed: list[int] = []

        def late(file: int) -> int:
            if file == number and not passed:
                passed.append(file)
                os.dup2(writing, number)
            return duplicate(file)

        own = (reading, writing, *(each.fileno() for each in (listener, first, second, ended, stays)))
        before = leading_to(*own)
        with monkeypatch.context() as patches:
            patches.setattr(os, "dup", late)
            assert Connections(listener.getsockname()[1], 1, 0, list).close_excess(()) == {}
        assert passed == [number]
        assert numbers(leading_to(*own)) <= numbers(before)
        # The pipe is still open for writing under both numbers, and nowhere else.
        os.write(number, b"x")
        assert os.read(reading, 1) == b"x"
        os.close(writing)
        os.close(ended.detach())
        assert select.select([reading], [], [], 30.0)[0] == [reading]
        assert os.read(reading, 1) == b""
        os.close(reading)
        stays.close()


def test_files_that_are_no_connections_are_left_alone() -> None:
    """Sockets that listen, are of another port, or of another kind, and files that are no sockets stay open."""
    reading, writing = os.pipe()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_connection(other.getsockname()) as client,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local,
    ):
        own = (reading, writing, *(each.fileno() for each in (listener, other, client, local)))
        before = leading_to(*own)
        assert Connections(listener.getsockname()[1], 0, 0, list).close_excess(()) == {}
        assert numbers(before) == set(map(str, own))
        assert leading_to(*own) == before
        with other.accept()[0] as server_end:
            client.sendall(b"x")
            assert server_end.recv(1) == b"x"
    os.close(reading)
    os.close(writing)
