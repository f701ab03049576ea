"""Programs that sleep, flood, talk rubbish or leave children behind end in an error, in time, and leave nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.base.text import clip
from controller.slurm.scontrol.run import ProcessRunner


def runner(folder: Path, **more: float) -> ProcessRunner:
    return ProcessRunner(bin_dir=folder, environment={"PATH": "/usr/bin:/bin"}, **{"timeout_s": 60.0, **more})


def program(folder: Path, script: str) -> None:
    path = folder / "scontrol"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def dead(pid: int) -> None:
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"
        await asyncio.sleep(0.02)


async def test_output_error_and_status_are_returned(tmp_path: Path) -> None:
    program(tmp_path, 'echo "$1 $(cat)"; echo oops >&2; exit 3')
    done = await runner(tmp_path).run("scontrol", ["a b"], b"from stdin")
    assert (done.stdout, done.stderr, done.status) == (b"a b from stdin\n", "oops", 3)


async def test_standard_input_is_empty_unless_given(tmp_path: Path) -> None:
    program(tmp_path, "wc -c")
    assert (await runner(tmp_path).run("scontrol", [])).stdout.strip() == b"0"


async def test_long_input_and_long_output_do_not_block_each_other(tmp_path: Path) -> None:
    program(tmp_path, "cat")
    text = os.urandom(1 << 22)
    assert (await runner(tmp_path).run("scontrol", [], text)).stdout == text


async def test_input_that_is_not_read_is_no_error(tmp_path: Path) -> None:
    program(tmp_path, "exec <&-; echo done")
    assert (await runner(tmp_path).run("scontrol", [], b"x" * (1 << 22))).stdout == b"done\n"


async def test_the_callers_environment_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    program(tmp_path, "env")
    assert b"SLURM_CLUSTERS" not in (await runner(tmp_path).run("scontrol", [])).stdout


async def late(folder: Path, *pid_files: str, problem: str = ".") -> list[int]:
    """The program is ended by the time limit; the process ids that it had written. It must have begun by then."""
    limit_s, files = 1, [folder / name for name in pid_files]
    while not all(file.exists() and file.read_text() for file in files):
        with pytest.raises(SlurmUnavailableError, match=problem.format(limit_s)):
            await runner(folder, timeout_s=limit_s).run("scontrol", [])
        limit_s *= 2
    return [int(file.read_text()) for file in files]


async def test_a_program_that_sleeps_is_ended(tmp_path: Path) -> None:
    program(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 600 & echo $! > {tmp_path}/child; wait")
    for pid in await late(tmp_path, "pid", "child", problem="no answer within {} s.*scontrol ping"):
        await dead(pid)


async def test_a_program_that_closes_its_output_and_stays_is_ended(tmp_path: Path) -> None:
    program(tmp_path, f"echo $$ > {tmp_path}/pid; exec >&- 2>&-; sleep 600")
    (pid,) = await late(tmp_path, "pid")
    await dead(pid)


async def test_a_child_that_keeps_the_pipe_does_not_keep_us(tmp_path: Path) -> None:
    program(tmp_path, f"setsid sleep 60 & echo $! > {tmp_path}/child; echo started")
    (child,) = await late(tmp_path, "child")
    os.kill(child, 9)


async def test_a_flood_is_stopped(tmp_path: Path) -> None:
    program(tmp_path, f"echo $$ > {tmp_path}/pid; yes 'JobId=1 rubbish'")
    with pytest.raises(SlurmReplyError, match="more than 1 MiB of output, beginning JobId=1 rubbish"):
        await runner(tmp_path, max_output_bytes=1 << 20).run("scontrol", [])
    await dead(int((tmp_path / "pid").read_text()))


async def test_a_flood_of_errors_is_stopped(tmp_path: Path) -> None:
    program(tmp_path, "yes oops >&2")
    with pytest.raises(SlurmReplyError):
        await runner(tmp_path, max_output_bytes=1 << 22).run("scontrol", [])


async def test_a_missing_program_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailableError, match=r"scontrol: cannot be run: No such file.*slurm_bin"):
        await runner(tmp_path).run("scontrol", [])


async def test_a_cancelled_call_ends_the_program(tmp_path: Path) -> None:
    program(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 600")
    call = asyncio.ensure_future(runner(tmp_path).run("scontrol", []))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await dead(int((tmp_path / "pid").read_text()))


@asynccontextmanager
async def one_slow_child(folder: Path) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """The only thread for programs is busy with one that waits for a file. Yields what lets that program end, and waits for it."""
    program(folder, f"echo $1 >> {folder}/started; [ $1 != slow ] || until [ -e {folder}/go ]; do sleep 0.02; done")
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        slow = asyncio.ensure_future(runner(folder).run("scontrol", ["slow"]))
        while not (folder / "started").exists():
            await asyncio.sleep(0.02)

        async def ends() -> None:
            (folder / "go").touch()
            await slow
            await runner(folder).run("scontrol", ["last"])  # everything before it has had its turn

        try:
            yield ends
        finally:
            (folder / "go").touch()


async def test_a_program_that_waits_for_its_turn_is_refused_in_time_and_never_started(tmp_path: Path) -> None:
    async with one_slow_child(tmp_path) as ends:
        with pytest.raises(SlurmUnavailableError, match=r"scontrol late: not begun within 0\.1 s"):
            await runner(tmp_path, timeout_s=0.1).run("scontrol", ["late"])
        await ends()
    assert (tmp_path / "started").read_text().split() == ["slow", "last"]


async def test_a_program_whose_call_is_cancelled_before_its_turn_is_never_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = [], subprocess.Popen

    def starts(argv: tuple[str, ...], **options: Any) -> subprocess.Popen[bytes]:
        started.append(argv[1])
        return start(argv, **options)

    monkeypatch.setattr(subprocess, "Popen", starts)
    async with one_slow_child(tmp_path) as ends:
        call = asyncio.ensure_future(runner(tmp_path).run("scontrol", ["cancelled"]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await ends()
    assert started == ["slow", "last"]


def test_foreign_text_is_shown_safe_and_short() -> None:
    assert clip(b"a\nb\x1b[31m\xff") == "a\\nb\\x1b[31m\ufffd"
    assert clip("x" * 1000, 10) == "xxxxxxxxxx..."


async def test_records_that_a_sieve_leaves_out_are_counted(tmp_path: Path) -> None:
    program(tmp_path, "echo one; echo two; echo three")

    class NoLine:
        left_out = 0

        def feed(self, chunk: bytes) -> bytes:
            self.left_out += chunk.count(b"\n")
            return b""

        def end(self) -> bytes:
            return b""

    sieved = ProcessRunner(bin_dir=tmp_path, environment={"PATH": "/usr/bin:/bin"}, timeout_s=60.0, sieve=NoLine)
    assert (await sieved.run("scontrol", [])).left_out == 3
    assert (await runner(tmp_path).run("scontrol", [])).left_out == 0
