"""The web page at the end of the demonstration."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from slurm.demo.errors import DemoError
from slurm.demo.run import page
from slurm.demo.run.interrupts import Interrupts
from slurm.demo.run.page import Page, offer, problem
from slurm.testbed.installation import Installation

needs_root = pytest.mark.skipif(bool(problem()), reason=problem() or "nothing is missing")


class ReadPage:
    address, token = "http://127.0.0.1:7/", "secret"


def offered(monkeypatch: pytest.MonkeyPatch, display: str) -> tuple[list[str], list[str]]:
    """Return the lines that are said, and the addresses that are opened."""
    said: list[str] = []
    opened: list[str] = []
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display)
    offer(ReadPage(), said.append, lambda: said.append("(waits)"), opened.append)  # type: ignore[arg-type]
    return said, opened


def test_without_a_display_the_address_is_said_and_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    said, opened = offered(monkeypatch, "")

    assert opened == []
    assert ReadPage.address in said[0]
    assert ReadPage.token in said[0]
    assert said[-1] == "(waits)"


def test_with_a_display_the_address_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    _, opened = offered(monkeypatch, ":0")
    assert opened == [ReadPage.address]


def test_a_signal_ends_the_wait_and_the_results_are_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", "")
    with Interrupts(lambda text: None) as interrupts:
        offer(ReadPage(), lambda text: None, lambda: signal.raise_signal(signal.SIGINT))  # type: ignore[arg-type]
    assert interrupts.received == signal.SIGINT


def test_without_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in problem()


@needs_root
def test_the_page_is_served_as_a_user_without_rights_and_ends_with_the_context() -> None:
    with Installation.prepare("page") as installation:
        with Page(installation) as served:
            with pytest.raises(urllib.error.HTTPError) as answer:
                urllib.request.urlopen(served.address, timeout=60)
            assert answer.value.code == 401
            answer.value.close()
            pid = installation.processes["page"].pid
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            assert set(status["Uid"].split()) != {"0"}
            assert "0" not in status["Uid"].split()
            assert status["NoNewPrivs"] == "1"
            assert f"{served.token}\n" not in (installation.folder / "web-tokens").read_text()
        assert installation.processes == {}
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", int(served.address[17:-1])), 1.0):
            pass


@needs_root
def test_a_page_that_does_not_start_is_an_error_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "program", lambda name: ["/bin/sh", "-c", "echo no page today; exit 3"])
    with Installation.prepare("page") as installation:
        with pytest.raises(DemoError, match="ended with status 3; its log:\nno page today"), Page(installation):
            pass
        assert installation.processes == {}


_DEMONSTRATION = """
import sys
from slurm.demo.run.page import Page
from slurm.testbed.installation import Installation

with Installation.prepare("page") as installation, Page(installation):
    print(installation.folder, installation.processes["page"].pid, flush=True)
    sys.stdin.read()
"""


@needs_root
def test_the_page_ends_with_a_demonstration_that_is_killed() -> None:
    command = [sys.executable, "-c", _DEMONSTRATION]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as demonstration:
        assert demonstration.stdout is not None
        folder, pid = demonstration.stdout.readline().split()
        ended = os.pidfd_open(int(pid))
        try:
            assert select.select([ended], [], [], 0)[0] == []
            demonstration.kill()
            assert select.select([ended], [], [], 60)[0] == [ended]
        finally:
            demonstration.kill()
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            os.close(ended)
            shutil.rmtree(folder)
