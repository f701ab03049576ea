"""Addresses, and those that need credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.uplink import munge
from nodeagent.uplink.endpoint import EndpointError, open_credential_codec, parse_endpoint
from nodeagent.uplink.munge import Munge, MungeError
from tests.unit.nodeagent.uplink.munged import skip_without_munge


@pytest.mark.parametrize(
    ("text", "target", "local"),
    [
        ("unix:///run/x.sock", "unix:/run/x.sock", True),
        ("unix:/run/x.sock", "unix:/run/x.sock", True),
        ("127.0.0.1:9", "127.0.0.1:9", True),
        ("localhost:9", "127.0.0.1:9", True),
        ("[::1]:9", "[::1]:9", True),
        ("head:9342", "head:9342", False),
        ("head.cluster.local:1", "head.cluster.local:1", False),
        ("0.0.0.0:1", "0.0.0.0:1", False),
        ("[::]:1", "[::]:1", False),
        ("10.0.0.1:65535", "10.0.0.1:65535", False),
    ],
)
def test_addresses(text: str, target: str, local: bool) -> None:
    endpoint = parse_endpoint(text)
    assert (endpoint.target, endpoint.local) == (target, local)
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    ["", "head", "head:", "head:x", "head:65536", ":9", "-x:9", "a b:9", "unix:run", "unix://x", f"unix:///{'x' * 107}", "http://h:1"],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_the_mend(text: str) -> None:
    with pytest.raises(EndpointError, match=r"give|allows"):
        parse_endpoint(text)


def test_without_munge_only_this_machine() -> None:
    assert open_credential_codec(parse_endpoint("unix:///x"), "off") is None
    assert open_credential_codec(parse_endpoint("127.0.0.1:1"), "off") is None
    with pytest.raises(EndpointError, match="MUNGE"):
        open_credential_codec(parse_endpoint("head:1"), "off")


def test_automatic_takes_munge_wherever_others_could_come() -> None:
    skip_without_munge()
    assert open_credential_codec(parse_endpoint("unix:///x"), "automatic") is None
    assert isinstance(open_credential_codec(parse_endpoint("127.0.0.1:1"), "automatic"), Munge)
    assert isinstance(open_credential_codec(parse_endpoint("head:1"), "automatic"), Munge)
    assert isinstance(open_credential_codec(parse_endpoint("unix:///x"), "required"), Munge)


def test_where_munge_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    munge._library.cache_clear()
    monkeypatch.setattr(munge, "LIBRARY", "libnone.so.0")
    try:
        assert open_credential_codec(parse_endpoint("127.0.0.1:1"), "automatic", Path("/x")) is None
        for text, mode in (("head:1", "automatic"), ("127.0.0.1:1", "required")):
            with pytest.raises(MungeError):
                open_credential_codec(parse_endpoint(text), mode)  # type: ignore[arg-type]
    finally:
        munge._library.cache_clear()
