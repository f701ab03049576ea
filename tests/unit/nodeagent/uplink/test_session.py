"""A receiver accepts only messages that were sent: whole, in order and once, whatever happens to them on their way."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.uplink.session import (
    KEY_BYTES,
    MAX_AGE_S,
    MAX_AHEAD_S,
    Direction,
    ReplayCache,
    SessionError,
    SessionFault,
    Signer,
    Ticket,
    Verifier,
    check_hello,
    check_ticket,
    make_ticket,
)

KEY, OTHER_KEY = b"k" * KEY_BYTES, b"o" * KEY_BYTES
AGENT, CONTROLLER = Direction.FROM_AGENT, Direction.FROM_CONTROLLER
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=8)
Message = tuple[int, bytes, bytes]


def signed(bodies: list[bytes], key: bytes | None = KEY, direction: Direction = AGENT) -> list[Message]:
    signer = Signer(key, direction)
    return [(number, body, mac) for body in bodies for number, mac in [signer.sign(body)]]


def fault_of(verifier: Verifier, message: Message) -> SessionFault | None:
    number, body, mac = message
    try:
        verifier.take(number, body, mac)
    except SessionError as error:
        return error.fault
    return None


def after(messages: list[Message], key: bytes | None = KEY) -> Verifier:
    """Return a verifier that has accepted these messages."""
    verifier = Verifier(key, AGENT)
    for message in messages:
        assert fault_of(verifier, message) is None
    return verifier


@given(BODIES, st.sampled_from([KEY, None]))
def test_what_was_sent_is_taken(bodies: list[bytes], key: bytes | None) -> None:
    after(signed(bodies, key), key)


@given(BODIES, st.data())
def test_a_duplicate_is_refused(bodies: list[bytes], data: st.DataObject) -> None:
    messages = signed(bodies)
    count = data.draw(st.integers(1, len(messages)))
    again = data.draw(st.integers(0, count - 1))
    assert fault_of(after(messages[:count]), messages[again]) is SessionFault.REPEATED


@given(BODIES, st.data())
def test_a_gap_is_refused(bodies: list[bytes], data: st.DataObject) -> None:
    messages = signed([*bodies, b"last"])
    count = data.draw(st.integers(0, len(messages) - 2))
    later = data.draw(st.integers(count + 1, len(messages) - 1))
    assert fault_of(after(messages[:count]), messages[later]) is SessionFault.SKIPPED


@given(BODIES, st.data())
def test_any_order_but_the_right_one_stops_at_the_first_that_is_wrong(bodies: list[bytes], data: st.DataObject) -> None:
    messages = signed(bodies)
    order = data.draw(st.permutations(range(len(messages))))
    verifier = Verifier(KEY, AGENT)
    right = 0
    for at, number in enumerate(order):
        fault = fault_of(verifier, messages[number])
        if number != at:
            assert fault is (SessionFault.SKIPPED if number > at else SessionFault.REPEATED)
            break
        assert fault is None
        right += 1
    assert right == next((at for at, number in enumerate(order) if number != at), len(order))


@given(st.binary(min_size=1, max_size=60), st.data())
def test_one_altered_bit_is_refused(body: bytes, data: st.DataObject) -> None:
    number, _, mac = signed([body])[0]
    part = data.draw(st.sampled_from(["body", "mac", "number"]))
    if part == "number":
        altered = (data.draw(st.integers(1, 2**64 - 1)), body, mac)
    else:
        raw = bytearray(body if part == "body" else mac)
        bit = data.draw(st.integers(0, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        altered = (number, bytes(raw), mac) if part == "body" else (number, body, bytes(raw))
    assert fault_of(Verifier(KEY, AGENT), altered) is SessionFault.FORGED


@given(st.binary(min_size=1, max_size=60), st.data())
def test_what_was_cut_is_refused(body: bytes, data: st.DataObject) -> None:
    number, _, mac = signed([body])[0]
    short = body[: data.draw(st.integers(0, len(body) - 1))]
    assert fault_of(Verifier(KEY, AGENT), (number, short, mac)) is SessionFault.FORGED
    cut = mac[: data.draw(st.integers(0, len(mac) - 1))]
    assert fault_of(Verifier(KEY, AGENT), (number, body, cut)) is SessionFault.MALFORMED


@given(BODIES)
def test_another_session_s_message_is_refused(bodies: list[bytes]) -> None:
    assert fault_of(Verifier(OTHER_KEY, AGENT), signed(bodies)[0]) is SessionFault.FORGED


@given(BODIES)
def test_what_the_other_side_said_cannot_be_said_back(bodies: list[bytes]) -> None:
    assert fault_of(Verifier(KEY, CONTROLLER), signed(bodies)[0]) is SessionFault.FORGED


def test_unsigned_and_signed_do_not_mix() -> None:
    assert fault_of(Verifier(KEY, AGENT), signed([b"x"], None)[0]) is SessionFault.MALFORMED
    assert fault_of(Verifier(None, AGENT), signed([b"x"])[0]) is SessionFault.MALFORMED


# --- the ticket


@given(st.binary(max_size=100), st.floats(allow_nan=False, allow_infinity=False), st.binary(min_size=32, max_size=32))
def test_a_ticket_comes_back_from_its_bytes(hello: bytes, time_s: float, key: bytes) -> None:
    ticket = make_ticket(hello, time_s, key)
    assert Ticket.unpack(ticket.pack()) == ticket
    check_hello(ticket, hello)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_no_bytes_but_a_ticket_s_are_a_ticket(payload: bytes) -> None:
    with pytest.raises(SessionError) as caught:
        Ticket.unpack(payload)
    assert caught.value.fault is SessionFault.MALFORMED


@given(st.data())
def test_a_cut_or_longer_ticket_is_none(data: st.DataObject) -> None:
    packed = make_ticket(b"hello", 1.0, KEY).pack()
    for wrong in (packed[: data.draw(st.integers(0, len(packed) - 1))], packed + data.draw(st.binary(min_size=1))):
        with pytest.raises(SessionError):
            Ticket.unpack(wrong)


@pytest.mark.parametrize(
    ("time_s", "fault"),
    [
        (1000.0, None),
        (1000.0 - MAX_AGE_S, None),
        (1000.0 - MAX_AGE_S - 1, SessionFault.TOO_OLD),
        (1000.0 + MAX_AHEAD_S, None),
        (1000.0 + MAX_AHEAD_S + 1, SessionFault.FROM_THE_FUTURE),
    ],
)
def test_clocks_may_differ_by_a_minute(time_s: float, fault: SessionFault | None) -> None:
    ticket = make_ticket(b"", time_s, KEY)
    if fault is None:
        check_ticket(ticket, 1000.0)
        return
    with pytest.raises(SessionError) as caught:
        check_ticket(ticket, 1000.0)
    assert caught.value.fault is fault


def test_a_ticket_is_for_one_method_and_one_hello() -> None:
    ticket = make_ticket(b"hello", 0.0, KEY)
    with pytest.raises(SessionError) as caught:
        check_hello(ticket, b"hello, from another node")
    assert caught.value.fault is SessionFault.OTHER_HELLO
    other = Ticket("/headway.v1.Policy/Decide", ticket.hello_digest, 0.0, KEY)
    with pytest.raises(SessionError) as caught:
        check_ticket(other, 0.0)
    assert caught.value.fault is SessionFault.OTHER_METHOD


def test_the_key_is_not_in_what_is_logged() -> None:
    assert "k" * 8 not in repr(make_ticket(b"", 0.0, KEY))


# --- replay


def take(cache: ReplayCache, key: bytes, at_s: float, machine: str = "", node: str = "") -> SessionFault | None:
    try:
        cache.take(make_ticket(b"", 0.0, key), at_s, machine, node)
    except SessionError as error:
        return error.fault
    return None


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 50)), max_size=40))
def test_no_ticket_is_taken_twice_within_its_time(uses: list[tuple[int, float]]) -> None:
    cache, last, now_s = ReplayCache(keep_s=100, limit=1000), {}, 0.0
    for which, pause_s in uses:
        now_s += pause_s
        fault = take(cache, bytes([which]) * KEY_BYTES, now_s)
        known = which in last and last[which] + 100 >= now_s  # as rounded as by the cache
        assert fault is (SessionFault.REPLAYED if known else None)
        if fault is None:
            last[which] = now_s


def test_a_full_memory_refuses_rather_than_forgets() -> None:
    cache = ReplayCache(keep_s=100, limit=3)
    for number in range(3):
        assert take(cache, bytes([number]) * KEY_BYTES, 0.0) is None
    assert take(cache, b"x" * KEY_BYTES, 1.0) is SessionFault.TOO_MANY
    assert take(cache, bytes(KEY_BYTES), 1.0) is SessionFault.REPLAYED
    assert take(cache, b"x" * KEY_BYTES, 101.0) is None
    assert len(cache) == 1


def test_one_machine_fills_its_share_of_the_memory_and_keeps_no_other_out() -> None:
    cache = ReplayCache(keep_s=100, limit=48)
    taken = [take(cache, bytes([number]) * KEY_BYTES, 0.0, "10.0.0.1") for number in range(100)]
    assert taken == [None] * 3 + [SessionFault.TOO_MANY] * 97
    assert take(cache, b"x" * KEY_BYTES, 1.0, "10.0.0.2") is None
    assert take(cache, b"y" * KEY_BYTES, 101.0, "10.0.0.1") is None
    assert sorted(cache._taken.values()) == [1, 1]
    assert take(cache, b"z" * KEY_BYTES, 300.0) is None
    assert not cache._taken


def many(cache: ReplayCache, number: int, machine: str, node: str) -> int:
    """Return how many of so many new credentials are accepted."""
    keys = (secrets.token_bytes(KEY_BYTES) for _ in range(number))
    return sum(take(cache, key, 0.0, machine, node) is None for key in keys)


def test_many_nodes_behind_one_address_have_room() -> None:
    cache = ReplayCache(limit=30 * 1000)
    assert all(many(cache, 15, "192.0.2.1", f"n{number}") == 15 for number in range(1000))


def test_callers_that_give_many_names_keep_no_node_out_that_calls_from_its_own_address() -> None:
    cache = ReplayCache(limit=2560)
    assert many(cache, 100, "192.0.2.1", "n1") == 10  # one name
    assert sum(many(cache, 10, "192.0.2.1", f"n{number}") for number in range(2, 1000)) == 1280 - 10  # one address
    assert sum(many(cache, 10, "192.0.2.2", f"n{number}") for number in range(1000)) == 640  # all such addresses
    assert many(cache, 200, "10.0.0.1", "") == 160
