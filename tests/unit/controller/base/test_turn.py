"""Turns: of controller and watchdog only one changes jobs at a time, and neither waits for a dead or silent one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controller.base.clock import VirtualClock
from controller.base.errors import TurnLostError
from controller.base.turn import Turn, controller_turn, watchdog_turn

TIMEOUT_S = 10.0
LASTS_S = 3 * TIMEOUT_S


class Pair:
    """The turns of both, on one clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.controller = controller_turn(folder, TIMEOUT_S, self.clock)
        self.watchdog = watchdog_turn(folder, TIMEOUT_S, self.clock)

    async def waited_s(self, turn: Turn, at_most_s: float = 1000.0) -> float:
        """Take a turn, end it at once, and return how long it took to begin."""
        begun_s = self.clock.monotonic()

        async def take() -> float:
            async with turn.taken():
                return self.clock.monotonic() - begun_s

        task = asyncio.ensure_future(take())
        await self.clock.advance(at_most_s)
        assert task.done(), "it waits for ever"
        return await task


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


async def test_a_turn_begins_at_once_while_the_other_has_none(pair: Pair) -> None:
    assert await pair.waited_s(pair.controller) == 0
    assert await pair.waited_s(pair.watchdog) == 0
    assert await pair.waited_s(pair.controller) == 0


@pytest.mark.parametrize("first", ["controller", "watchdog"])
async def test_a_turn_waits_for_the_end_of_the_other(pair: Pair, first: str) -> None:
    one, other = (pair.controller, pair.watchdog) if first == "controller" else (pair.watchdog, pair.controller)
    begun: list[float] = []

    async def later() -> None:
        async with other.taken():
            begun.append(pair.clock.monotonic())

    async with one.taken():
        task = asyncio.ensure_future(later())
        for _ in range(20):
            await pair.clock.advance(1.0)
            one.check()  # a wait of the other does not end this turn
        assert not begun
        end_s = pair.clock.monotonic()
    await pair.clock.advance(1.0)
    await task
    assert 0 <= begun[0] - end_s <= 0.2


async def test_a_controller_that_waits_comes_before_the_watchdogs_next_turn(pair: Pair) -> None:
    order: list[str] = []

    async def take(name: str, turn: Turn) -> None:
        async with turn.taken():
            order.append(name)

    async with pair.watchdog.taken():
        waiting = asyncio.ensure_future(take("controller", pair.controller))
        await pair.clock.advance(0.05)
    again = asyncio.ensure_future(take("watchdog", pair.watchdog))
    await pair.clock.advance(5.0)
    await asyncio.gather(waiting, again)
    assert order == ["controller", "watchdog"]


async def test_a_process_that_was_stopped_in_its_turn_sends_no_further_command(pair: Pair) -> None:
    async with pair.controller.taken():
        pair.controller.check()
        # when it is stopped for so long that the watchdog has a turn
        assert LASTS_S <= await pair.waited_s(pair.watchdog) < LASTS_S + 1
        with pytest.raises(TurnLostError, match="watchdog has changed jobs"):
            pair.controller.check()
    async with pair.controller.taken() as other_had_one:
        assert other_had_one
        pair.controller.check()
    async with pair.controller.taken() as other_had_one:
        assert not other_had_one


async def test_a_watchdog_that_was_stopped_in_its_turn_sends_no_further_command(pair: Pair) -> None:
    async with pair.watchdog.taken():
        assert LASTS_S <= await pair.waited_s(pair.controller) < LASTS_S + 1
        with pytest.raises(TurnLostError):
            pair.watchdog.check()


async def test_signs_of_life_keep_a_long_turn_until_the_watchdogs_patience_ends(pair: Pair) -> None:
    async with pair.controller.taken():
        begun_s = pair.clock.monotonic()
        watchdog = AsyncExitStack()
        entering = asyncio.ensure_future(watchdog.enter_async_context(pair.watchdog.taken()))
        while not entering.done():
            pair.controller.check()
            await pair.clock.advance(2.0)
        assert 4 * LASTS_S <= pair.clock.monotonic() - begun_s <= 4 * LASTS_S + 4
        with pytest.raises(TurnLostError):
            pair.controller.check()
        await watchdog.aclose()


@pytest.mark.parametrize(
    "text", ["", "busy", "busy x y z", "busy 1 inf 1:1", "busy 99999999999999999999 1.0 1:1", "\0" * 5000]
)
async def test_a_damaged_file_is_no_turn(pair: Pair, text: str) -> None:
    (pair.folder / "watchdog.turn").write_text(text)
    assert await pair.waited_s(pair.controller) == 0


async def test_a_dead_process_has_no_turn(pair: Pair) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], check=True, capture_output=True, text=True
    )
    (pair.folder / "watchdog.turn").write_text(f"busy {dead.stdout.strip()} {pair.clock.monotonic()!r} 1:1\n")
    assert await pair.waited_s(pair.controller) == 0


async def test_a_link_or_a_pipe_in_the_others_place_is_not_read(pair: Pair) -> None:
    (pair.folder / "elsewhere").write_text(f"busy {os.getpid()} {pair.clock.monotonic()!r} 1:1\n")
    (pair.folder / "watchdog.turn").symlink_to("elsewhere")
    assert await pair.waited_s(pair.controller) == 0
    (pair.folder / "watchdog.turn").unlink()
    os.mkfifo(pair.folder / "watchdog.turn")
    assert await pair.waited_s(pair.controller) == 0


async def test_without_a_folder_there_are_no_turns(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "missing")
    async with pair.controller.taken():
        pair.controller.check()
        assert await pair.waited_s(pair.watchdog) == 0
        pair.controller.check()


async def test_a_wait_that_is_cancelled_leaves_no_turn(pair: Pair) -> None:
    async def take() -> None:
        async with pair.controller.taken():
            pass

    async with pair.watchdog.taken():
        waiting = asyncio.ensure_future(take())
        await pair.clock.advance(1.0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await pair.waited_s(pair.watchdog) == 0
