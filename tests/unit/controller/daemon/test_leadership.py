"""A controller works while the slurmctld of its machine is active, and stands by otherwise."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from controller.admin.protocol import STANDBY_FILE, STATUS_SOCKET
from controller.base.clock import RealClock
from controller.base.errors import TurnLostError
from controller.base.turn import controller_turn
from controller.cli.client import UNREACHABLE, CallError, find_socket
from controller.daemon import leadership as module
from controller.daemon.leadership import Leadership
from controller.slurm.slurmctld_hosts import SlurmctldHosts
from policies.serving.runtime.sdnotify import Notifier


class House:
    """The disk that two machines of slurmctld share, and the controller of the second one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heartbeat = folder / "heartbeat"
        self.clock = RealClock()
        self.leadership = Leadership(SlurmctldHosts(("ctl1", "ctl2"), 1, self.heartbeat), self.clock)
        self.stop = asyncio.Event()

    def beat(self, number: int) -> None:
        """The slurmctld with that number is active; it replaces the file as Slurm does."""
        fresh = self.folder / "heartbeat.new"
        fresh.write_bytes(struct.pack(">QQ", 1_795_787_549, number))
        fresh.replace(self.heartbeat)

    async def stand_by(self) -> bool:
        return await self.leadership.stand_by(self.folder, Notifier({}), self.stop)


class Hanging(SlurmctldHosts):
    """A shared disk that does not answer."""

    answers = threading.Event()

    def active(self) -> int | None:
        self.answers.wait()
        return None


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(module, "_LOOK_S", 0.02)
    monkeypatch.setattr(module, "_BLIND_S", 600.0)  # a test may be delayed for longer than ten seconds
    return House(tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_it_begins_to_work_when_its_slurmctld_takes_over(house: House) -> None:
    house.beat(0)
    waiting = asyncio.create_task(house.stand_by())
    await until((house.folder / STANDBY_FILE).exists)
    assert (house.folder / STANDBY_FILE).read_text() == "ctl1\n"
    with pytest.raises(TurnLostError, match="slurmctld of ctl1 has become active"):
        house.leadership.check()

    house.beat(1)

    assert await waiting is True
    assert not (house.folder / STANDBY_FILE).exists()
    house.leadership.check()


async def test_it_ends_when_another_slurmctld_takes_over(house: House) -> None:
    house.beat(1)
    assert await house.stand_by() is True
    lost: list[bool] = []
    watching = asyncio.create_task(house.leadership.watch(lambda: lost.append(True)))

    house.beat(0)
    await until(lambda: bool(lost))
    await asyncio.sleep(0.1)
    watching.cancel()

    assert lost == [True]
    with pytest.raises(TurnLostError):
        house.leadership.check()


async def test_every_command_is_checked(house: House) -> None:
    turn = controller_turn(house.folder, 10.0, house.clock, permitted=house.leadership.check)
    house.beat(1)
    await house.stand_by()
    async with turn.taken():
        turn.check()
        house.beat(0)
        watching = asyncio.create_task(house.leadership.watch(lambda: None))
        await until(lambda: not house.leadership.works)
        with pytest.raises(TurnLostError):
            turn.check()
    watching.cancel()


async def test_while_the_shared_disk_is_away_nothing_is_changed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.beat(1)
    await house.stand_by()
    monkeypatch.setattr(module, "_BLIND_S", 0.2)
    lost: list[bool] = []
    watching = asyncio.create_task(house.leadership.watch(lambda: lost.append(True)))
    house.heartbeat.unlink()
    await asyncio.sleep(0.5)

    with pytest.raises(TurnLostError, match="heartbeat does not answer"):
        house.leadership.check()
    assert lost == []  # the disk may come back

    house.beat(1)
    await until(lambda: is_permitted(house.leadership))
    watching.cancel()


def is_permitted(leadership: Leadership) -> bool:
    with suppress(TurnLostError):
        leadership.check()
        return True
    return False


async def test_a_disk_that_does_not_answer_stops_neither_the_loop_nor_the_end(house: House) -> None:
    leadership = Leadership(Hanging(("ctl1", "ctl2"), 1, house.heartbeat), house.clock)
    waiting = asyncio.create_task(leadership.stand_by(house.folder, Notifier({}), house.stop))
    try:
        await asyncio.sleep(0.1)
        threads = [thread for thread in threading.enumerate() if thread.name == "heartbeat of slurmctld"]
        house.stop.set()
        async with asyncio.timeout(60):
            assert await waiting is False
        assert len(threads) == 1  # not one for each look
    finally:
        Hanging.answers.set()


async def test_a_controller_that_stands_by_ends_on_request(house: House) -> None:
    house.beat(0)
    waiting = asyncio.create_task(house.stand_by())
    await until((house.folder / STANDBY_FILE).exists)
    house.stop.set()

    assert await waiting is False
    assert not (house.folder / STANDBY_FILE).exists()


async def test_the_only_controller_always_works(house: House) -> None:
    leadership = Leadership(None, house.clock)

    assert await leadership.stand_by(house.folder, Notifier({}), house.stop) is True
    leadership.check()
    assert leadership.works


def test_users_are_sent_to_the_machine_whose_controller_works(tmp_path: Path) -> None:
    (tmp_path / STANDBY_FILE).write_text("ctl1\n")
    with pytest.raises(CallError, match="the slurmctld of ctl1 is active: run this on ctl1") as refused:
        find_socket(None, tmp_path / STATUS_SOCKET, change=False)
    assert refused.value.exit_code == UNREACHABLE
