"""Sockets of users that send open files: nothing waits for the release of a file."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from policies.serving.runtime.user_sockets import PassedFileError, SocketCloser, UserListener, UserSocket
from tests.unit.policies.serving.runtime.lingering_file import LingeringFile, lingering, older_kernel, send_file

__all__ = ["lingering"]
DEADLINE_S = 60.0
KINDS = [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


@pytest.fixture
def closer(monkeypatch: pytest.MonkeyPatch) -> SocketCloser:
    """The closer of this test, on an older kernel."""
    return older_kernel(monkeypatch)


def connected(path: Path, kind: int) -> tuple[socket.socket, socket.socket]:
    """A user's end of a connection, and ours."""
    with UserListener(socket.AF_UNIX, kind) as listener:
        listener.bind(str(path))
        listener.listen()
        user = socket.socket(socket.AF_UNIX, kind)
        user.connect(str(path))
        ours, _ = listener.accept()
    return user, ours


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_refuses_files_where_it_can(tmp_path: Path, kind: int, lingering: LingeringFile) -> None:
    user, ours = connected(tmp_path / "s", kind)
    assert isinstance(ours, UserSocket)
    with user, ours:
        if ours.takes_files:
            pytest.skip("this kernel is older than 6.16")
        with pytest.raises(PermissionError):
            lingering.send_by(user)
        user.send(b"data")
        assert ours.recv(100) == b"data"


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_with_a_file_is_not_read_and_the_connection_ends_while_the_file_is_held(
    tmp_path: Path, kind: int, lingering: LingeringFile, closer: SocketCloser
) -> None:
    user, ours = connected(tmp_path / "s", kind)
    user.send(b"first")
    assert ours.recv(100) == b"first"
    lingering.send_by(user)
    with pytest.raises(PassedFileError):
        ours.recv(100)
    with pytest.raises(PassedFileError):
        ours.recv_into(bytearray(100))
    ours.close()
    assert ours.fileno() == -1
    assert closer.held > 0  # a thread waits for the file
    with suppress(ConnectionResetError):  # the user sees the end
        assert user.recv(100) == b""
    user.close()
    lingering.let_go()
    until(lambda: closer.held == 0)


def test_a_file_behind_data_of_a_stream_is_found(
    tmp_path: Path, lingering: LingeringFile, closer: SocketCloser
) -> None:
    user, ours = connected(tmp_path / "s", socket.SOCK_STREAM)
    user.send(b"harmless")
    lingering.send_by(user)
    with pytest.raises(PassedFileError):
        ours.recv(100)
    ours.close()
    user.close()


def test_a_file_with_an_urgent_byte_is_found(tmp_path: Path, closer: SocketCloser) -> None:
    user, ours = connected(tmp_path / "s", socket.SOCK_STREAM)
    reading, writing = os.pipe()
    try:
        send_file(user, reading, flags=socket.MSG_OOB)
    except OSError as error:  # a kernel before 5.15, or without CONFIG_AF_UNIX_OOB
        pytest.skip(f"no urgent data: {error}")
    user.send(b"more")
    with pytest.raises(PassedFileError):
        ours.recv(100)
    for file in (reading, writing):
        os.close(file)
    ours.close()
    user.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [b"", b"x"])
def test_closing_unread_does_not_wait_for_a_file(
    tmp_path: Path, kind: int, first: bytes, lingering: LingeringFile, closer: SocketCloser
) -> None:
    user, ours = connected(tmp_path / "s", kind)
    until(lambda: closer.held == 0)  # the listener is closed
    user.send(first)
    lingering.send_by(user)
    ours.close()
    assert closer.held == 1
    user.close()
    lingering.let_go()
    until(lambda: closer.held == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_socket_with_nothing_to_read_is_closed_at_once(tmp_path: Path, kind: int, closer: SocketCloser) -> None:
    user, ours = connected(tmp_path / "s", kind)
    until(lambda: closer.held == 0)
    file = ours.fileno()
    with user:
        ours.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
        with pytest.raises(BrokenPipeError):
            user.send(b"too late")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_without_files_arrives_whole(tmp_path: Path, kind: int, closer: SocketCloser) -> None:
    user, ours = connected(tmp_path / "s", kind)
    buffer = bytearray(100)
    user.send(b"one")
    assert ours.recv(2) == b"on"
    user.send(b"two")
    assert ours.recv_into(buffer, 50) > 0
    user.close()
    while ours.recv(100):
        pass
    assert ours.recv_into(buffer) == 0
    ours.close()


def test_one_user_s_files_hold_up_no_other_user_and_too_many_stop_the_listener(
    tmp_path: Path, lingering: LingeringFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    older_kernel(monkeypatch)
    closer = SocketCloser(most=2)
    monkeypatch.setattr("policies.serving.runtime.user_sockets.closer", closer)
    one, other = socket.socketpair()
    lingering.send_by(one)
    with UserListener(socket.AF_UNIX, socket.SOCK_STREAM) as listener, socket.socket(socket.AF_UNIX) as user:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        user.connect(str(tmp_path / "s"))
        # given two sockets of one user, of which the first hangs
        closer.close(1000, other.detach())
        second = os.dup(one.fileno())
        closer.close(1000, second)
        assert closer.full
        # then no connection is accepted
        with pytest.raises(OSError, match="release of files") as refused:
            listener.accept()
        assert refused.value.errno == errno.EMFILE
        # and another user's socket is closed
        reading, writing = os.pipe()
        closer.close(1001, writing)
        assert os.read(reading, 1) == b""
        os.close(reading)
        # until the file is released
        lingering.let_go()
        until(lambda: not closer.full)
        listener.accept()[0].close()
    one.close()


def test_a_process_without_threads_left_closes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    closer = SocketCloser()
    one, other = os.pipe()
    with monkeypatch.context() as patched:

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", refuse)
        closer.close(1000, one)
    assert closer.held == 1
    closer.close(1000, other)
    until(lambda: closer.held == 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(one)
