"""Setup for every test.

Programs that it starts must not inherit an ignored SIGINT from the shell that runs the tests, and how one test has set up
logging must not decide what the next one sees. Hypothesis must not take a busy machine for a slow test.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts background jobs with SIGINT ignored, and tests interrupt programs by it."""
    del config
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Undo what the test, or a program that it runs in its own process, has set up."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
