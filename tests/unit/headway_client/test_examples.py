"""The examples of docs/client.md run, and its tables are complete."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import headway_client
import pytest
from headway_client import (
    Client,
    EventKind,
    HeadwayError,
    JobState,
    PreemptionCause,
    PreemptionEndReason,
    PreemptionStage,
    PreemptionWay,
    Reason,
)
from headway_client.wire.call_end import CallEnd

from controller.admin.protocol import Reason as ControllerReason
from controller.admin.refusal import _CODES
from controller.admin.serve import serve_admin
from controller.base.events import LoggedEvent
from controller.state.preemption import Cause, EndReason, PreemptionMethod, Stage
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.docs.test_docs import Page

PAGE = Page(Path(__file__).resolve().parents[3] / "docs" / "client.md")
EXAMPLES = PAGE.blocks("python")


@asynccontextmanager
async def living(folder: Path) -> AsyncIterator[ControllerWorld]:
    """A cluster where a job runs and another waits for its nodes; a second passes whenever there is time for it."""
    world = world_in(folder)
    world.endpoint.away = True
    world.sbatch(300.0, gpus_per_node=8, nodes=3)
    await world.go_on(2)
    world.sbatch(300.0, gpus_per_node=8, nodes=2)
    await world.turn()

    async def live() -> None:
        while True:
            await world.go_on(1)
            await asyncio.sleep(0.01)

    async with serve_admin(world, folder, ""):
        living = asyncio.create_task(live())
        try:
            yield world
        finally:
            living.cancel()
            with suppress(asyncio.CancelledError):
                await living


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_the_examples_run(
    folder: Path, number: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = folder / "controller.toml"
    settings.write_text(f'runtime_dir = "{folder}"\n')
    monkeypatch.setattr("headway_client.sockets.DEFAULT_SETTINGS", settings)
    program = compile(EXAMPLES[number], f"example {number} of docs/client.md", "exec")

    async with living(folder):
        await asyncio.to_thread(exec, program, {"__name__": "example"})

    assert capfd.readouterr().out.strip()


# --- tables


def test_every_method_is_in_the_document() -> None:
    rows = "\n".join(re.findall(r"^\| `.*$", PAGE.text, re.MULTILINE))

    assert {name for name in vars(Client) if not name.startswith("_")} <= set(re.findall(r"`(\w+)\(", rows))


def test_every_error_and_reason_is_in_the_document() -> None:
    rows = re.findall(r"^\| `(\w+Error)` \| (.*) \| ?(.*) ?\|$", PAGE.text, re.MULTILINE)
    reasons = {name: set(re.findall(r"`([\w-]+)`", listed)) for name, _, listed in rows}
    public = {name for name in headway_client.__all__ if name.endswith("Error")} - {"HeadwayError"}

    assert reasons.keys() == public
    assert set().union(*reasons.values()) == {reason.value for reason in ControllerReason}
    for reason in ControllerReason:
        raised = CallEnd(_CODES[reason], "", Reason(reason.value)).error(1)
        assert reason.value in reasons[type(raised).__name__]
        assert isinstance(raised, HeadwayError) and raised.reason is Reason(reason.value)


# --- the words are the controller's


def known(words: type[headway_client.words.Word]) -> set[str]:
    return {word.value for word in words if word.known}


def test_the_words_are_those_of_the_controller() -> None:
    assert known(Reason) == {reason.value for reason in ControllerReason}
    assert known(PreemptionStage) == {stage.value for stage in Stage}
    assert known(PreemptionEndReason) == {reason.value for reason in EndReason}
    assert known(PreemptionCause) == {cause.value for cause in Cause}
    assert known(PreemptionWay) == {way.value for way in PreemptionMethod}
    assert known(EventKind) == set(re.findall(r"\b[a-z]+\b", (LoggedEvent.__doc__ or "").partition("one of ")[2]))
    proto = (PAGE.path.parents[1] / "protos/headway/v1/admin.proto").read_text()
    for state in known(JobState):
        assert re.search(rf"// .*\b{state}\b", proto)
