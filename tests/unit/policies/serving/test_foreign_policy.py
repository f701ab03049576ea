"""Policies that are not ours: one of another project that knows only the .proto files, and one from another package."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from policies.api import PolicySpec
from policies.model import Placement
from policies.serving.client import PolicyClient
from tests.unit.policies.processes import ROOT, eventually, running, serve_command
from tests.unit.policies.serving.test_server import OUTCOME
from tests.unit.policies.states.cluster import Job, Node, cluster

STATE = cluster(
    [Node(), Node(available=False), Node(foreign_gpus=4)],
    [Job(gpus=6, occupied={0: 6}), Job(gpus=1), Job(gpus=2), Job(gpus=3), Job(gpus=16)],
    sequence=41,
)


async def test_a_server_that_only_knows_the_proto_files(tmp_path: Path) -> None:
    # Given a folder with the .proto files and one script, and nothing else of ours
    protos = tmp_path / "their-copy"
    for source in (ROOT / "protos").rglob("*.proto"):
        copy = protos / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    script = tmp_path / "server.py"
    shutil.copy(ROOT / "tests/foreign_policy/server.py", script)
    address = f"unix://{tmp_path}/policy.sock"
    env = {"PYTHONPATH": "", "TMPDIR": str(tmp_path)}
    with running(
        sys.executable, str(script), str(protos), address.replace("///", "/"), env=env, cwd=tmp_path
    ) as process:
        # When our client talks to it
        assert process.stdout is not None
        stubs = await asyncio.to_thread(process.stdout.readline)
        imported = await asyncio.to_thread(process.stdout.readline)
        async with PolicyClient(address) as client:
            spec = await client.describe(60.0)
            decision = await client.decide(STATE, 60.0)
            received = await client.learn([OUTCOME] * 3, 60.0)
            healthy = await client.healthy(30.0)
    # Then it is served by its own stubs,
    assert str(tmp_path) in stubs
    assert not {"policies", "controller", "slurm", "numpy"} & set(imported.split())
    # describes itself, decides newest first (the largest fits nowhere), reads outcomes, and has no health service to ask.
    assert spec == PolicySpec(name="newest-first", version="3", source="somebody else")
    assert decision.allocation == {
        0: Placement((0,), (6,)),
        3: Placement((2,), (3,)),
        2: Placement((0,), (2,)),
        1: Placement((2,), (1,)),
    }
    assert decision.queue == (4, 3, 2, 1)
    assert decision.reasons[3] == "newest, and n2 has room"
    assert received == 3
    assert not healthy


@pytest.fixture
def their_package(tmp_path: Path) -> dict[str, str]:
    """The example package as pip would install it, with a broken policy beside; the environment in which it is installed."""
    example = ROOT / "examples/newest-first"
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    policies = project["entry-points"]["headway.policies"] | {"broken": "newest_first:Missing"}
    shutil.copy(example / "newest_first.py", tmp_path)
    info = tmp_path / "newest_first-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = ["[headway.policies]", *(f"{name} = {target}" for name, target in policies.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}


async def test_a_policy_from_another_package_is_served(their_package: dict[str, str], tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/policy.sock"
    with running(*serve_command("newest-first:limit=2", address), env=their_package):
        async with PolicyClient(address) as client:
            await eventually(client.healthy)
            assert (await client.describe(30.0)).source == "an example"
            assert (await client.decide(STATE, 60.0)).queue == (4, 3)


def test_a_policy_from_another_package_is_listed_and_a_broken_one_says_why(their_package: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from policies.serving.cli.app import main; main()", "list", "--json"],
        env={**os.environ, **their_package},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    listed = json.loads(result.stdout)
    assert "newest-first" in [policy["name"] for policy in listed["policies"]]
    assert "newest_first:Missing" in listed["broken"]["broken"]
