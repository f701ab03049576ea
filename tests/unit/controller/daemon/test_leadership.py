"""A controller works while the slurmctld of its machine is active, and stands by otherwise."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

import pytest

from controller.admin.protocol import STANDBY_FILE, STATUS_SOCKET
from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.base.errors import TurnLostError
from controller.base.lease import Lease, write_lease
from controller.base.turn import controller_turn
from controller.cli.client import UNREACHABLE, CallError, find_socket
from controller.daemon import leadership as module
from controller.daemon.assemble import _works_now, open_journal
from controller.daemon.leadership import Leadership
from controller.slurm.model.job import JobKey
from controller.slurm.slurmctld_hosts import SlurmctldHosts
from controller.state.journal import Journal
from policies.serving.runtime.sdnotify import Notifier


class House:
    """The disk that two machines of slurmctld share, and the controller of the second one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heartbeat = folder / "heartbeat"
        self.clock = RealClock()
        self.lease = folder / "lease"
        self.leadership = self.started()
        self.stop = asyncio.Event()

    def started(self) -> Leadership:
        """A controller that was started anew."""
        hosts = SlurmctldHosts(("ctl1", "ctl2"), 1, self.heartbeat, cluster="lab")
        return Leadership(hosts, self.clock, self.lease)

    def renew_lease(self, age_s: float = 0.0) -> None:
        write_lease(self.lease, Lease(int(self.clock.now() - age_s), 600.0, ("dl",), 0, 0))

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


async def test_it_exports_that_it_stands_by_until_it_works(house: House) -> None:
    """Otherwise Prometheus takes it for one that is away."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = ControllerSettings(partitions=("dl",), runtime_dir=house.folder, metrics_address=address)

    def scrape() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
            return str(reply.read().decode())

    house.beat(0)
    waiting = asyncio.create_task(_works_now(house.leadership, settings, Notifier({})))
    await until((house.folder / STANDBY_FILE).exists)
    text = await asyncio.to_thread(scrape)
    assert 'headway_stands_by{slurm_cluster="lab"} 1.0' in text
    assert "headway_start_timestamp_seconds" in text and "headway_build_info" in text
    assert "headway_lease" not in text

    house.beat(1)
    assert await waiting is True
    with pytest.raises(OSError, match="refused"):  # the port is free for the metrics of the controller that works
        await asyncio.to_thread(scrape)


async def test_one_that_works_at_once_exports_nothing_before(house: House) -> None:
    house.beat(1)

    def never() -> AbstractContextManager[None]:
        raise AssertionError("it does not stand by")

    assert await house.leadership.stand_by(house.folder, Notifier({}), house.stop, never) is True


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


async def test_a_controller_that_has_stood_by_knows_that_the_other_may_have_placed_jobs(house: House) -> None:
    # given a lease that is still fresh, from the time before the other slurmctld became active
    house.renew_lease()
    house.beat(0)
    waiting = asyncio.create_task(house.stand_by())
    await until((house.folder / STANDBY_FILE).exists)
    # when it begins to work
    house.beat(1)
    assert await waiting is True

    assert house.leadership.others_may_have_worked
    # and when it is killed before its first cycle, and works at once after the next start
    house.leadership = house.started()
    assert await house.stand_by() is True
    assert house.leadership.others_may_have_worked
    assert not house.leadership.has_stood_by


async def test_a_lease_that_was_renewed_as_the_other_took_over_is_withdrawn(house: House) -> None:
    house.beat(1)
    house.renew_lease()
    assert await house.stand_by() is True
    assert not house.leadership.others_may_have_worked
    lost = asyncio.Event()
    watching = asyncio.create_task(house.leadership.watch(lost.set))
    house.beat(0)
    async with asyncio.timeout(60):
        await lost.wait()
    house.renew_lease()
    house.leadership.withdraw_lease()
    watching.cancel()

    house.beat(1)
    house.leadership = house.started()
    assert await house.stand_by() is True
    assert house.leadership.others_may_have_worked


@pytest.mark.parametrize(("age_s", "may_have"), [(0.0, False), (3600.0, True), (-3600.0, True), (None, True)])
async def test_one_that_works_at_once_knows_it_by_its_lease(house: House, age_s: float | None, may_have: bool) -> None:
    """A restart of the service keeps the lease. After a boot there is none: the other machine may have worked for days."""
    if age_s is not None:
        house.renew_lease(age_s)
    house.beat(1)
    assert await house.stand_by() is True
    house.leadership.withdraw_lease()

    assert house.leadership.others_may_have_worked is may_have
    assert house.lease.exists() is (age_s is not None)


@pytest.mark.parametrize("fresh", [True, False])
async def test_the_journal_counts_as_old_if_the_other_may_have_worked(house: House, fresh: bool) -> None:
    key = JobKey("7", 1_795_787_549)
    path = house.folder / "journal.sqlite"
    with closing(Journal(path)) as journal:
        journal.load_ledger()
        journal.found_all()
    if fresh:
        house.renew_lease()
    house.beat(1)
    assert await house.stand_by() is True

    with closing(open_journal(path, house.leadership)) as journal:
        journal.load_ledger()
        assert journal.may_lack(key, seen_here=False) is not fresh
        journal.found_all()
        assert not journal.may_lack(key, seen_here=False)


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
    leadership = Leadership(Hanging(("ctl1", "ctl2"), 1, house.heartbeat), house.clock, house.lease)
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
    leadership = Leadership(None, house.clock, house.lease)

    assert await leadership.stand_by(house.folder, Notifier({}), house.stop) is True
    leadership.check()
    assert leadership.works


def test_users_are_sent_to_the_machine_whose_controller_works(tmp_path: Path) -> None:
    (tmp_path / STANDBY_FILE).write_text("ctl1\n")
    with pytest.raises(CallError, match="the slurmctld of ctl1 is active: run this on ctl1") as refused:
        find_socket(None, tmp_path / STATUS_SOCKET, change=False)
    assert refused.value.exit_code == UNREACHABLE
