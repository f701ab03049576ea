"""Notifications of a running controller, as its settings have them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError
from controller.base.web_address import WebAddress, parse_web_address
from controller.cycle.view.controller_view import ControllerView
from controller.notify.command import Command, require_command
from controller.notify.message import Notification
from controller.notify.outbox import Outbox, Receivers
from controller.notify.source import NotificationSource
from controller.notify.user_outbox import UserOutbox
from controller.notify.webhook import Webhook
from policies.documents import DocumentError, read_text

_MOST_TOKEN = 4096


@contextmanager
def send_notifications(controller: ControllerView, settings: ControllerSettings) -> Iterator[tuple[Receivers, ...]]:
    """Send notifications within the context; gives the receivers, empty for none. Raises ConfigurationError."""
    outboxes = receivers(settings)
    if not outboxes:
        yield ()
        return

    def send(notification: Notification) -> None:
        if notification.event.value in controller.settings.notify_events:  # a reload may have changed them
            for outbox in outboxes:
                outbox.put(notification)

    source = NotificationSource(controller, send)
    with ExitStack() as stack:
        for outbox in outboxes:
            outbox.start()
            stack.callback(outbox.close)
        stack.callback(source.close)
        controller.listeners.append(source.on_cycle)
        stack.callback(controller.listeners.remove, source.on_cycle)
        controller.preemptions.listeners.append(source.on_preemption)
        stack.callback(controller.preemptions.listeners.remove, source.on_preemption)
        yield outboxes


def receivers(settings: ControllerSettings) -> tuple[Receivers, ...]:
    """Return the receivers: the site's webhook, its program, and the webhooks of users. Raises ConfigurationError."""
    found: list[Receivers] = []
    limit_s = settings.notify_timeout_s
    if settings.notify_webhook:
        address = parse_web_address(settings.notify_webhook)
        found.append(Outbox("webhook", Webhook(address, limit_s, _token(settings.notify_webhook_token, address))))
    if settings.notify_command is not None:
        require_command(settings.notify_command)
        found.append(Outbox("command", Command(settings.notify_command, limit_s)))
    if users := {user: Webhook(parse_web_address(url), limit_s) for user, url in settings.notify_users.items()}:
        found.append(UserOutbox("users", users))
    return tuple(found)


def _token(path: Path | None, address: WebAddress) -> str:
    """Return the token in the file; empty without one."""
    if path is None:
        return ""
    key = f"notify_webhook_token: {path}"
    if not address.encrypted and not address.stays_here:
        raise ConfigurationError(f"{key}: a token is sent over https only; change notify_webhook")
    try:
        facts = path.stat()
        token = read_text(path, _MOST_TOKEN).strip()
    except (OSError, DocumentError) as error:
        raise ConfigurationError(
            f"{key}: cannot be read: {error}; name a file of the controller's user with the token in it"
        ) from error
    if facts.st_uid not in {0, os.geteuid()} or stat.S_IMODE(facts.st_mode) & 0o077:
        raise ConfigurationError(f"{key}: other users can read it (chmod 600 {path}), or it belongs to another user")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"{key}: must contain one token of printable ASCII characters")
    return token
