"""Calls have a minute in tests: on a slow machine each process may be delayed by several seconds."""

from __future__ import annotations

import pytest
from headway_client import calls

from controller.cli import client
from controller.web import source

PATIENCE_S = 60.0
PATIENT_PROGRAM = f"""
from controller.cli import client
client._DEADLINE_S = {PATIENCE_S}
"""
"""Begins programs that ask a controller."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls without a limit of their own have this one in place of five seconds, and those of the web page in place of ten."""
    short = calls.Call.__init__.__defaults__
    assert short is not None
    assert calls._SOON_S in short
    longer = tuple(PATIENCE_S if limit == calls._SOON_S else limit for limit in short)
    monkeypatch.setattr(calls.Call.__init__, "__defaults__", longer)
    monkeypatch.setattr(client, "_DEADLINE_S", PATIENCE_S)
    monkeypatch.setattr(source, "_TIMEOUT_S", PATIENCE_S)
