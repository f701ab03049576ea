"""The stream of an agent: how it ends."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from nodeagent.uplink.stream import StreamError
from policies.serving.runtime.tasks.task_groups import first_of


async def test_a_stream_whose_both_directions_fail_ends_with_one_error_and_logs_no_other() -> None:
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def fail(direction: str) -> None:
        raise StreamError(f"lost while {direction}")

    with pytest.raises(StreamError, match="lost while"):
        await first_of(fail("sending"), fail("receiving"))
    gc.collect()
    assert logged == []
