"""One cluster for all tests that only look at it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.controller.web.site import Site, site


@pytest.fixture(scope="package")
def cluster() -> Iterator[Site]:
    """A cluster with a short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path, site(Path(path)) as found:
        yield found
