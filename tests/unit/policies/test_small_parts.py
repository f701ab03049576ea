"""Addresses, options as text, and notifications of systemd."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from policies.api import load_policy, parse_policy, policy_names
from policies.errors import AddressError, PolicyLoadError
from policies.serving.runtime.address import parse_address
from policies.serving.runtime.sdnotify import Notifier


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        ("unix:///run/headway/policy.sock", "unix:/run/headway/policy.sock", "unix:///run/headway/policy.sock"),
        ("unix:/run/p.sock", "unix:/run/p.sock", "unix:///run/p.sock"),
        ("127.0.0.1:7000", "127.0.0.1:7000", "127.0.0.1:7000"),
        ("127.8.0.1:7000", "127.8.0.1:7000", "127.8.0.1:7000"),
        ("localhost:7000", "127.0.0.1:7000", "127.0.0.1:7000"),
        ("[::1]:7000", "[::1]:7000", "[::1]:7000"),
    ],
)
def test_addresses_are_parsed(text: str, target: str, shown: str) -> None:
    address = parse_address(text)
    assert (address.target, str(address)) == (target, shown)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1:1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:", ":80", "unix://host/x", "unix:///" + "x" * 120],
)
def test_other_addresses_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(AddressError, match=r"unix:///|127\.0\.0\.1|107 bytes"):
        parse_address(text)


def test_texts_of_policies_are_parsed() -> None:
    assert parse_policy("fifo") == ("fifo", {})
    assert parse_policy("las:round_s=60") == ("las", {"round_s": 60})
    assert parse_policy("x:a=1.5,b=true,c=False,d=word") == ("x", {"a": 1.5, "b": True, "c": False, "d": "word"})


@pytest.mark.parametrize("value", ["2026_11_28", "0042", "1e3", "true", "nan", "42", "1.50"])
def test_an_option_that_is_a_text_stays_as_it_is_written(value: str) -> None:
    assert parse_policy(f"dl2:weights={value}") == ("dl2", {"weights": value})


@pytest.mark.parametrize("value", ["2026_11_28", "0042", "1e3", "nan", "inf", "+5", "1_0.5", "00.5"])
def test_what_python_writes_otherwise_is_no_number_where_no_annotation_asks_for_one(value: str) -> None:
    assert parse_policy(f"x:a={value},b=-3,c=1.50") == ("x", {"a": value, "b": -3, "c": 1.5})


def test_an_option_that_takes_a_number_may_be_written_in_every_way() -> None:
    assert parse_policy("las:round_s=1e3") == ("las", {"round_s": 1000.0})


@pytest.mark.parametrize("value", ["9" * 400, "-1", "nan", "1e999", "true"])
def test_a_number_that_no_option_can_be_is_refused_by_name(value: str) -> None:
    with pytest.raises(PolicyLoadError, match="round_s is "):
        load_policy(*parse_policy(f"las:round_s={value}"))


@pytest.mark.parametrize("text", ["las:", "las:round_s", "las:=1", "las:a=1,a=2", "las:a b=1"])
def test_invalid_texts_of_policies_are_refused(text: str) -> None:
    with pytest.raises(PolicyLoadError, match="key=value"):
        parse_policy(text)


@pytest.mark.parametrize(
    ("policy", "there_are"),
    [("las", "it has no option 'rond'; it takes round_s"), ("fifo", "it has no option 'rond'; it takes layout")],
)
def test_an_unknown_option_is_answered_with_those_there_are(policy: str, there_are: str) -> None:
    with pytest.raises(PolicyLoadError, match=there_are):
        load_policy(policy, {"rond": 3})


def test_an_unknown_policy_is_answered_with_those_there_are() -> None:
    with pytest.raises(PolicyLoadError, match=re.escape(f"installed: {', '.join(policy_names())}")):
        load_policy("nope")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified_of_each_state(tmp_path: Path, abstract: bool) -> None:
    path = f"@headway-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path[1:] if abstract else path)
        manager.settimeout(10)
        notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())})
        assert notifier.watchdog_s == 30
        notifier.ready("serving")
        assert manager.recv(1000) == b"READY=1\nSTATUS=serving"
        notifier.reloading()
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        notifier.watchdog()
        assert manager.recv(1000) == b"WATCHDOG=1"
        notifier.status("12 jobs")
        assert manager.recv(1000) == b"STATUS=12 jobs"
        notifier.status("/srv/caf\udce9: no such file")
        assert manager.recv(1000) == rb"STATUS=/srv/caf\udce9: no such file"
        notifier.stopping()
        assert manager.recv(1000) == b"STOPPING=1"


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert Notifier({}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "soon"}).watchdog_s is None
