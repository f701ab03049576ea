"""Policy servers as processes, for tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from slurm.processes import accepts, wait_until

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def running(
    *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and end it with the block, however that ends. Its output is in pipes."""
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def serve_command(policy: str, listen: str) -> list[str]:
    """Return the argv of headway-policy serve, in the Python that runs the tests."""
    start = "from policies.serving.cli.app import main; main()"
    return [sys.executable, "-c", start, "serve", "--policy", policy, "--listen", listen]


def until_accepted(address: str, within_s: float = 60.0) -> None:
    """Return when the server that has just been started accepts connections on its Unix socket."""
    assert wait_until(lambda: accepts(Path(address.removeprefix("unix://"))), within_s), (
        f"{address}: not in {within_s} s"
    )


Result = TypeVar("Result")


async def eventually(check: Callable[[], Awaitable[Result]], *, within_s: float = 60.0) -> Result:
    """Return the first true answer of `check`."""
    deadline = time.monotonic() + within_s
    while True:
        answer = await check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {within_s} s"
        await asyncio.sleep(0.02)
