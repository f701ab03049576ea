"""Webhooks against a real HTTP server: what arrives, and that no server can keep a delivery beyond its limit."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from controller.base.web_address import parse_web_address
from controller.notify import webhook as module
from controller.notify.outbox import DeliveryError
from controller.notify.webhook import Webhook
from tests.unit.controller.notify.jobs import notification
from tests.unit.controller.notify.receiver import Receiver, receiving


def webhook(url: str, limit_s: float = 20.0, token: str = "") -> Webhook:
    return Webhook(parse_web_address(url), limit_s, token)


def test_a_notification_arrives_as_json_with_the_token() -> None:
    with receiving() as receiver:
        webhook(receiver.url, token="s3cret")(notification())
        webhook(receiver.url)(notification(name='"; DROP\r\nX: y'))
    assert [body["event"] for body in receiver.bodies] == ["started", "started"]
    assert receiver.tokens == ["Bearer s3cret", None]


@pytest.mark.parametrize("status", [301, 307, 400, 401, 500])
def test_other_answers_are_failures_that_name_the_server_without_secrets(status: int) -> None:
    problem = pytest.raises(DeliveryError, match=rf"http://127\.0\.0\.1:\d+: .* status {status}$")
    with receiving() as elsewhere, receiving(status=status, location=elsewhere.url) as receiver, problem as failed:
        webhook(receiver.url, token="s3cret")(notification())
    assert "hook" not in str(failed.value)
    assert elsewhere.bodies == []  # a redirect would take the token there


def test_a_server_that_sends_a_byte_now_and_then_is_cut_off() -> None:
    with receiving(hang=threading.Event()) as receiver:
        limit_s, attempts = 0.5, 0
        while not receiver.bodies:  # it must have got that far
            attempts += 1
            begun = time.monotonic()
            with pytest.raises(DeliveryError, match=rf"no answer in {limit_s:g} s"):
                webhook(receiver.url, limit_s=limit_s)(notification())
            assert time.monotonic() - begun < 60
            limit_s *= 2
    assert len(receiver.bodies) <= attempts, "none is sent twice"


def test_a_server_that_says_nothing_is_cut_off() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(DeliveryError, match=r"no answer in 0\.5 s"):
            webhook(url, limit_s=0.5)(notification())


def test_nobody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    with pytest.raises(DeliveryError, match=rf"http://127\.0\.0\.1:{port}: .*refused"):
        webhook(f"http://127.0.0.1:{port}/")(notification())


def test_a_server_without_a_valid_certificate_gets_nothing() -> None:
    with receiving() as receiver, pytest.raises(DeliveryError, match="https://127"):
        webhook(receiver.url.replace("http:", "https:"), token="s3cret")(notification())
    assert receiver.bodies == []


Address = tuple[str, int]


def test_files_of_certificates_are_read_once_for_a_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[ssl.Purpose] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda _, purpose: read.append(purpose))
    with receiving() as receiver, pytest.raises(DeliveryError):
        webhook(receiver.url.replace("http:", "https:"))(notification())
    assert read == [ssl.Purpose.SERVER_AUTH]


@pytest.fixture
def dead() -> Iterator[Address]:
    """An address that does not answer: its queue of connections is full."""
    with socket.socket() as server, ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(server.getsockname())
        yield server.getsockname()


def has_addresses(monkeypatch: pytest.MonkeyPatch, *addresses: Address, after_s: float = 0.0) -> None:
    """Let the name dual.example have these addresses, which a look-up gives after so many seconds."""

    def look_up(*_: object, **__: object) -> list[tuple[Any, ...]]:
        time.sleep(after_s)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def of(receiver: Receiver) -> Address:
    return "127.0.0.1", parse_web_address(receiver.url).port


def test_a_first_address_that_does_not_answer_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch, dead: Address
) -> None:
    with receiving() as receiver:
        has_addresses(monkeypatch, dead, of(receiver))
        webhook("http://dual.example/", limit_s=10.0)(notification())
    assert len(receiver.bodies) == 1


def test_a_host_of_which_no_address_answers_is_cut_off(monkeypatch: pytest.MonkeyPatch, dead: Address) -> None:
    has_addresses(monkeypatch, dead, dead)
    with pytest.raises(DeliveryError, match=r"http://dual\.example:80: no answer in 0\.2 s"):
        webhook("http://dual.example/", limit_s=0.2)(notification())


def test_nothing_is_sent_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        has_addresses(monkeypatch, of(receiver), after_s=1.0)
        with pytest.raises(DeliveryError, match=r"no answer in 0\.2 s"):
            webhook("http://dual.example/", limit_s=0.2)(notification())
        # and a server that is reached just at the limit gets nothing either
        monkeypatch.setattr(module, "connect", late_connection(of(receiver)))
        with pytest.raises(DeliveryError, match=r"no answer in 0\.2 s"):
            webhook("http://dual.example/", limit_s=0.2)(notification())
    assert receiver.bodies == []


def late_connection(address: Address) -> Callable[..., socket.socket]:
    def connect(*_: object) -> socket.socket:
        found = socket.create_connection(address)
        time.sleep(1.0)
        return found

    return connect


def test_a_server_that_sends_a_byte_of_its_handshake_now_and_then_is_cut_off() -> None:
    ended = threading.Event()

    def drip(server: socket.socket) -> None:
        with suppress(OSError), closing(server.accept()[0]) as found:
            found.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB, of which a byte comes now and then
            while not ended.wait(0.05):
                found.sendall(b"\x02")

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=drip, args=(server,), daemon=True)
        thread.start()
        with pytest.raises(DeliveryError, match=r"no answer in 0\.5 s"):
            webhook(f"https://127.0.0.1:{server.getsockname()[1]}/", limit_s=0.5)(notification())
        ended.set()
        thread.join(60)


def test_the_token_is_not_shown() -> None:
    assert "s3cret" not in repr(webhook("https://chat.example/x", token="s3cret"))
