"""Serves the page until SIGTERM, and reports to systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette

from controller.base.errors import ConfigurationError
from controller.web.app import make_app
from controller.web.impatient import ImpatientProtocol
from controller.web.settings import ListenAddress, WebSettings, load_settings
from controller.web.tokens import read_tokens
from policies.errors import ListenError
from policies.serving.runtime.listen import OwnSocket, make_way, umask
from policies.serving.runtime.logs import set_up_logging
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.task_groups import task_group
from policies.serving.runtime.user_sockets import UserListener

log = structlog.get_logger(__name__)

_SOCKET_MODE = 0o660
_BACKLOG = 256
_MOST_AT_ONCE = 200
"""Connections that are served at once; further ones get 503."""
_MOST_HEADER = 16 << 10
"""Longest header of a request, in bytes."""
_ALIVE_S = 10.0


def checked(path: Path) -> WebSettings:
    """Return the settings in that file, when its tokens can be read too. Raises ConfigurationError."""
    settings = load_settings(path)
    if settings.token_file is not None:
        read_tokens(settings.token_file)
    return settings


async def run_web(path: Path) -> None:
    """Serve until SIGTERM. Raises ConfigurationError when the page cannot be served."""
    settings = checked(path)
    set_up_logging(settings.log_level, settings.log_format)
    tokens = {} if settings.token_file is None else read_tokens(settings.token_file)
    server = _Server(server_config(make_app(settings, tokens)))
    listener = listen(settings.address)
    own = None if settings.address.path is None else OwnSocket.at(settings.address.path)
    try:
        await _serve(server, listener, settings)
    finally:
        listener.close()
        if own is not None:
            own.remove()
    log.info("stopped")


def server_config(app: Starlette, most_at_once: int = _MOST_AT_ONCE) -> uvicorn.Config:
    """Return the configuration of the web server: limits for each connection, and on their number."""
    return uvicorn.Config(
        app, proxy_headers=False, server_header=False, access_log=False, log_config=None, lifespan="off",
        limit_concurrency=most_at_once, timeout_keep_alive=15, timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=_MOST_HEADER, http=ImpatientProtocol, ws="none",
    )  # fmt: skip


class _Server(uvicorn.Server):
    """A server that ends by `should_exit` alone: uvicorn would raise a signal again, and the program would die of it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield


async def _serve(server: uvicorn.Server, listener: socket.socket, settings: WebSettings) -> None:
    notifier = Notifier()

    def stop() -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    log.info("started", listen=settings.listen, status_socket=str(settings.status_socket))
    notifier.ready()
    async with task_group() as tasks:
        alive = tasks.create_task(_stay_alive(notifier))
        await server.serve(sockets=[listener])
        notifier.stopping()
        alive.cancel()


async def _stay_alive(notifier: Notifier) -> None:
    """Report to systemd's watchdog for as long as the event loop runs."""
    while True:
        notifier.watchdog()
        await asyncio.sleep(_ALIVE_S if notifier.watchdog_s is None else notifier.watchdog_s / 3)


def listen(address: ListenAddress) -> socket.socket:
    """Return a socket that listens there. A Unix socket is for this user and its group. Raises ConfigurationError."""
    if address.path is not None:
        found: socket.socket = UserListener(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        found = socket.socket(socket.AF_INET6 if ":" in str(address.host) else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if address.path is None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((address.host, address.port))
        else:
            make_way(address.path)
            with umask(0o777 & ~_SOCKET_MODE):
                found.bind(os.fspath(address.path))
        found.listen(_BACKLOG)
    except (OSError, ListenError) as error:
        found.close()
        raise ConfigurationError(f"listen: cannot listen there: {error}; give another address in web.toml") from error
    return found
