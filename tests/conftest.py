"""Setup for every test.

Programs that it starts must not inherit an ignored SIGINT from the shell that runs the tests, and how one test has set up
logging must not decide what the next one sees. Hypothesis must not take a busy machine for a slow test. What has been imported
stays for the whole run, so that the garbage collector need not go through it again and again: a story of tests/campaign, which
collects often, would take three times as long. In parallel processes, files of tests that wait come between those that compute,
a few tests compute at once, and arithmetic has one thread in each: several threads in each of eight processes would wait for each
other most of the time.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.file_order import spread_files
from tests.time_slices import ask_for_long_slices
from tests.turns import Turns, most_turns

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
TURNS = pytest.StashKey[Turns]()
TURNS_FILE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts background jobs with SIGINT ignored, and tests interrupt programs by it. Torch and numpy read their number of
    threads when they are imported, which follows; programs that tests start inherit it. By default structlog draws each traceback
    with all variables, which takes a second for one of a controller."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback
    if hasattr(config, "workerinput"):
        ask_for_long_slices()
        config.stash[TURNS] = Turns(config.workerinput["turns"], most_turns())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist, also one that replaces a crashed one, where it finds the turns."""
    config = node.config
    if TURNS_FILE not in config.stash:
        file = tempfile.NamedTemporaryFile(prefix="headway-tests-")  # noqa: SIM115 - closed at the end of the run
        config.add_cleanup(file.close)
        config.stash[TURNS_FILE] = file.name
    node.workerinput["turns"] = config.stash[TURNS_FILE]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests that compute have turns. The wait for one is before the test's own time limit begins."""
    turns = item.config.stash.get(TURNS, None)
    if turns is None or item.get_closest_marker("cluster"):
        return (yield)
    with turns.turn():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports leave little garbage, and looking for it would take a tenth of their time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Processes that run tests in parallel get waiting and computing files by turns."""
    if hasattr(config, "workerinput"):
        items[:] = spread_files(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """All modules of tests, and with them most of the product, are imported by now."""
    del session
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Undo what the test, or a program that it runs in its own process, has set up."""
    yield
    logging.disable(logging.NOTSET)
    if structlog.is_configured():
        structlog.reset_defaults()
