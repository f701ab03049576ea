"""A controller with receivers in its settings: real servers and a real program, and the metrics of both."""

from __future__ import annotations

import json
import re
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.admin.metrics.exporter import make_registry
from controller.base.config import ControllerSettings, load_settings
from controller.base.errors import ConfigurationError
from controller.notify.service import receivers, send_notifications
from slurm.testbed.installation import Installation
from slurm.testbed.programs import InstallationError
from tests.unit.controller.notify.receiver import receiving, until
from tests.unit.controller.worlds.controller_world import world_in


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def settings(folder: Path, **changes: Any) -> ControllerSettings:
    return ControllerSettings(partitions=("dl",), runtime_dir=folder, **changes)


async def test_the_site_gets_all_events_and_each_user_those_of_the_own_jobs(folder: Path) -> None:
    with receiving() as site, receiving() as alices, receiving(status=500) as bobs:
        # Given receivers of the site and of two users, one of which fails
        world = world_in(folder, settings_changes={
            "notify_webhook": site.url, "notify_users": {"alice": alices.url, "bob": bobs.url},
            "notify_events": ("started",),
        })  # fmt: skip
        world.endpoint.away = True
        await world.turn()
        with send_notifications(world, world.settings) as outboxes:
            # When jobs of three users start and end
            for user in ("alice", "bob", "carol"):
                world.sbatch(5.0, gpus_per_node=8, user=user)
            await world.go_on(20)
            until(lambda: len(site.bodies) == 3 and alices.bodies and bobs.bodies, "all have arrived")
            until(lambda: sum(box.deliveries.failed for box in outboxes) == 1, "the failure is counted")
            until(lambda: sum(box.deliveries.sent for box in outboxes) == 4, "the others are counted")
        # Then all of them arrive at the site, and only the wanted events
        assert {body["user"] for body in site.bodies} == {"alice", "bob", "carol"}
        assert {body["event"] for body in site.bodies} == {"started"}
        assert [body["user"] for body in alices.bodies] == ["alice"]
        assert [body["user"] for body in bobs.bodies] == ["bob"]
        # And the metrics count them
        registry = make_registry(world, receivers=outboxes)
        counted = {
            outcome: registry.get_sample_value("headway_notifications_total", {"receiver": "users", "outcome": outcome})
            for outcome in ("sent", "failed", "dropped")
        }
        assert counted == {"sent": 1, "failed": 1, "dropped": 0}
    assert [each for each in world.listeners if "notify" in each.__module__] == []


def test_without_receivers_nothing_is_made(folder: Path) -> None:
    assert receivers(settings(folder)) == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('notify_webhook = "ftp://x/"', "notify_webhook: .*must begin with https://HOST"),
        ('notify_webhook = "https://user:pw@x/"', "notify_webhook: .*must not contain a user or a password"),
        ('notify_webhook = "https://x/a b"', "notify_webhook: .*without blanks"),
        ('notify_webhook = "https://x:99999/"', "notify_webhook: .*host or port cannot be read"),
        ('notify_users = { alice = "nowhere" }', "notify_users.*alice: must begin with"),
        ('notify_events = ["start"]', "notify_events"),
        ("notify_timeout_s = 600", "notify_timeout_s"),
    ],
)
def test_wrong_settings_are_refused_by_their_key(folder: Path, line: str, message: str) -> None:
    path = folder / "controller.toml"
    path.write_text(f'partitions = ["dl"]\n{line}\n')
    with pytest.raises(ConfigurationError, match=message) as refused:
        load_settings(path)
    # Services for chats put a secret into the address
    assert not re.search(r"pw@|ftp:|a b", str(refused.value))


def test_a_token_is_kept_from_others_and_goes_over_https_only(folder: Path) -> None:
    token = folder / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    hooks = {"notify_webhook": "https://chat.example/x", "notify_webhook_token": token}
    assert len(receivers(settings(folder, **hooks))) == 1
    with pytest.raises(ConfigurationError, match="over https only"):
        receivers(settings(folder, **hooks | {"notify_webhook": "http://chat.example/x"}))
    receivers(settings(folder, **hooks | {"notify_webhook": "http://127.0.0.1:1/x"}))
    token.chmod(0o644)
    with pytest.raises(ConfigurationError, match=f"chmod 600 {token}"):
        receivers(settings(folder, **hooks))
    token.chmod(0o600)
    token.write_text("two words")
    with pytest.raises(ConfigurationError, match="one token"):
        receivers(settings(folder, **hooks))
    token.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        receivers(settings(folder, **hooks))


def test_a_real_controller_notifies_a_server_and_a_program_and_serves_the_counts(folder: Path) -> None:
    # Given a controller with its emulated Slurm, on which a job starts by itself
    (folder / "cluster.toml").write_text(
        '[[nodes]]\nnames = "n[1-2]"\ngpus = 8\n[[partitions]]\nname = "dl"\n'
        "[[jobs]]\nat_s = 6\nduration_s = 6\nnodes = 1\ngpus = 4\n"
    )
    program = folder / "notify"
    program.write_text(f"#!/bin/sh\ncat >>{folder}/got; echo >>{folder}/got\n")
    program.chmod(0o755)
    with receiving() as receiver, Installation.prepare("notify", folder) as headway:
        headway.configure(
            None, embedded_cluster=str(folder / "cluster.toml"), notify_webhook=receiver.url,
            notify_command=str(program), metrics_address="127.0.0.1:0",
        )  # fmt: skip
        headway.start_controller()
        # When it has run
        until(lambda: [body["event"] for body in receiver.bodies] == ["started", "ended"], "both events", 60)
        until(lambda: (folder / "got").exists() and (folder / "got").read_text().count("\n") == 2, "the program", 30)
        # Then both have the same, and the metrics count them
        got = [json.loads(line) for line in (folder / "got").read_text().splitlines()]
        assert got == receiver.bodies
        assert got[0]["nodes"] in {"n1", "n2"}
        page = f"http://127.0.0.1:{_metrics_port(headway)}/metrics"
        line = b'headway_notifications_total{outcome="sent",receiver="command"} 2.0'
        until(lambda: line in _read(page), "both are counted")
        # And a program that others may change keeps the controller from starting
        program.chmod(0o777)
        assert headway.stop("controller") == 0
        with pytest.raises(InstallationError, match="notify_command"):
            headway.start_controller()


def _read(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as page:
        found: bytes = page.read()
        return found


def _metrics_port(headway: Installation) -> int:
    """Return the port of loopback on which the controller listens."""
    pid = headway.processes["controller"].pid
    inodes = {
        link.readlink().name.removeprefix("socket:[").removesuffix("]")
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if str(link.readlink()).startswith("socket:")
    }
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    (port,) = [int(line[1].partition(":")[2], 16) for line in lines if line[3] == "0A" and line[9] in inodes]
    return port
