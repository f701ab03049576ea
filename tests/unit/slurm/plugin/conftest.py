"""job_submit.lua under every Lua of this machine, with a wake pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.slurm.lua_plugin import LUAS, LuaPlugin, Pipe


@pytest.fixture(params=sorted(LUAS))
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> LuaPlugin:
    plugin = LuaPlugin(LUAS[request.param], tmp_path)
    plugin.beat()
    return plugin


@pytest.fixture
def pipe(plugin: LuaPlugin) -> Iterator[Pipe]:
    pipe = Pipe(plugin.runtime_dir / "wake")
    yield pipe
    os.close(pipe.fd)
