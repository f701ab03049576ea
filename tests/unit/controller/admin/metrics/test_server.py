"""The server of the metrics meets clients that send nothing, send slowly, do not read, or come in great numbers."""

from __future__ import annotations

import selectors
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from controller.admin.metrics import server as metrics_server
from controller.admin.metrics.server import MetricsServer, Places

PLACES = 8
WITHIN_S = 60.0


@contextmanager
def serving(registry: CollectorRegistry | None = None, longest_s: float = 3600.0) -> Iterator[MetricsServer]:
    """A server of a small registry in a thread of its own."""
    if registry is None:
        registry = CollectorRegistry()
        Gauge("headway_answer", "the answer", registry=registry).set(42)
    with running(MetricsServer("127.0.0.1", 0, registry, places=PLACES, longest_s=longest_s)) as server:
        yield server


@contextmanager
def running(server: MetricsServer) -> Iterator[MetricsServer]:
    """Serve in a thread; the server listens already."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WITHIN_S)


def silent(server: MetricsServer, said: bytes = b"") -> socket.socket:
    """Connect, and say no more than this."""
    client = socket.create_connection(("127.0.0.1", server.server_port), timeout=WITHIN_S)
    client.sendall(said)
    return client


def scrape(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=WITHIN_S) as reply:
        return str(reply.read().decode())


def scrape_somehow(server: MetricsServer) -> str:
    """Try again as Prometheus does: on a busy machine the threads of cut connections may take a moment to end."""
    for _ in range(600):
        with suppress(OSError):
            return scrape(server)
        threading.Event().wait(0.1)
    raise AssertionError("no scrape was answered")


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it did not come about")


def ended(client: socket.socket) -> bool:
    """Wait for the end of the connection."""
    try:
        while client.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def readable(clients: Sequence[socket.socket]) -> list[socket.socket]:
    """Wait for one of these connections to end, and return those that have. (`select` takes no file above number 1023.)"""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        ends = {key.fileobj for key, _ in selector.select(WITHIN_S)}
    return [client for client in clients if client in ends]


def said_by_the_server(logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the events of the metrics that are no detail: other parts of the process may log meanwhile."""
    events = [entry["event"] for entry in logs if entry["log_level"] != "debug"]
    return [event for event in events if event.startswith("metrics_")]


@pytest.mark.parametrize("said", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_silent_connections_keep_no_scrape_out_and_take_no_more_threads(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 3600.0)
    with serving() as server, ExitStack() as stack:
        before = threading.active_count()
        clients = [stack.enter_context(silent(server, said)) for _ in range(10 * PLACES)]
        assert "headway_answer 42.0" in scrape_somehow(server)
        # all but as many as there are places had to go, and with them their threads
        open_ones = clients
        while len(open_ones) > PLACES:
            gone = readable(open_ones)
            assert gone
            open_ones = [client for client in open_ones if client not in gone]
        until(lambda: threading.active_count() <= before + 2 * PLACES)


def test_a_connection_that_lasts_too_long_is_cut() -> None:
    """A request of which a byte comes now and then never ends by the limit on silence."""
    with serving(longest_s=0.2) as server, silent(server, b"GET /metrics HTTP/1.1\r\nX: ") as client:
        with suppress(OSError):
            while True:
                client.sendall(b"x")
                time.sleep(0.01)
        assert ended(client)


def test_a_connection_that_says_nothing_for_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.1)
    with capture_logs() as logs, serving() as server, silent(server) as client:
        assert ended(client)
    assert said_by_the_server(logs) == []


def large() -> CollectorRegistry:
    """Return a registry whose answer no socket's buffers hold."""
    registry = CollectorRegistry()
    Gauge("headway_answer", "x" * (16 << 20), registry=registry).set(42)
    return registry


def never_reading(server: MetricsServer) -> socket.socket:
    """Ask with a small buffer for the answer, and read none of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(WITHIN_S)
    client.connect(("127.0.0.1", server.server_port))
    client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    return client


def writing(server: MetricsServer) -> int:
    """Return how many answers wait for their clients."""
    return sum(place.writing_s is not None for place in list(server.places._places.values()))


def test_clients_that_do_not_read_make_room_for_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 3600.0)
    with serving(large()) as server, ExitStack() as stack:
        for _ in range(PLACES):
            stack.enter_context(never_reading(server))
        until(lambda: writing(server) == PLACES)
        assert "headway_answer 42.0" in scrape_somehow(server)
        until(lambda: writing(server) == PLACES - 1)  # one had to go, and no more


def test_a_client_that_does_not_read_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.5)
    server = MetricsServer("127.0.0.1", 0, large(), longest_s=3600.0)
    # It asks before there is a thread that might cut it as silent.
    with capture_logs() as logs, never_reading(server), running(server):
        until(lambda: any(entry["event"] == "metrics_client_does_not_read" for entry in logs))
        until(lambda: not server.places._places)
    assert "Traceback" not in "".join(capfd.readouterr())
    assert said_by_the_server(logs) == []


class Slow:
    """A collector that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go_on = threading.Event()

    def collect(self) -> Iterator[object]:
        self.asked.release()
        assert self.go_on.wait(WITHIN_S)
        return iter(())


def test_a_scrape_under_way_is_not_interrupted_and_further_ones_are_refused() -> None:
    registry, slow = CollectorRegistry(auto_describe=False), Slow()
    registry.register(slow)  # type: ignore[arg-type]
    with serving(registry) as server, ExitStack() as stack:
        request = b"GET /metrics HTTP/1.1\r\n\r\n"
        scrapes = [stack.enter_context(silent(server, request)) for _ in range(PLACES)]
        for _ in scrapes:
            assert slow.asked.acquire(timeout=WITHIN_S)
        refused = [stack.enter_context(silent(server)) for _ in range(3)]
        assert all(ended(client) for client in refused)
        slow.go_on.set()
        for client in scrapes:
            assert client.recv(4096).startswith(b"HTTP/1.0 200 OK")
            assert ended(client)
        until(lambda: not server.places._places)
        # the places are free again
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=WITHIN_S) as reply:
            assert reply.status == 200


def test_the_end_of_the_server_ends_its_connections() -> None:
    with serving() as server:
        client = silent(server)
        scrape(server)
    with client:
        assert ended(client)


def test_out_of_files_it_pauses_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(metrics_server, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    with serving() as server:
        accept: Callable[[], object] = server.socket.accept
        fails = iter([True, True])

        class Exhausted:
            def accept(self) -> object:
                if next(fails, False):
                    raise OSError(24, "Too many open files")
                return accept()

            def __getattr__(self, name: str) -> object:
                return getattr(listening, name)

        listening = server.socket
        server.socket = Exhausted()  # type: ignore[assignment]
        assert "headway_answer" in scrape(server)
        server.socket = listening
    assert pauses == [0.5, 0.5]


def test_a_connection_is_never_cut_after_it_has_left() -> None:
    """A closed socket's number may be that of another file by then."""
    now_s = [0.0]
    places = Places(2, 10.0, lambda: now_s[0])
    one, other = socket.socketpair()
    with one, other:
        assert places.enter(one)
        places.leave(one)
        now_s[0] = 100.0
        places.cut_overdue()
        places.cut_all()
        one.sendall(b"x")
        assert other.recv(1) == b"x"
