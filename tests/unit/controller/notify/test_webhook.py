"""Webhooks against a real HTTP server: what arrives, and that no server can keep a delivery beyond its limit."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing

import pytest

from controller.base.web_address import parse_web_address
from controller.notify.outbox import DeliveryError
from controller.notify.webhook import Webhook
from tests.unit.controller.notify.jobs import notification
from tests.unit.controller.notify.receiver import receiving


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


def test_the_token_is_not_shown() -> None:
    assert "s3cret" not in repr(webhook("https://chat.example/x", token="s3cret"))
