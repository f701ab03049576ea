"""The number of threads in which a served policy computes, as the program that operators run has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policies.serving.client import PolicyClient
from tests.unit.policies.processes import ROOT, eventually, running, serve_command

_PROBE = """\
{torch}
import numpy, sys
from policies.api import Decision, PolicySpec

class Probe:
    def __init__(self):
        import torch
        self.spec = PolicySpec(name="probe", source=f"{{torch.get_num_threads()}} threads")

    def decide(self, state):
        return Decision({{}})
"""


@pytest.mark.parametrize("imported", ["with the policy's module", "when the policy is made"])
async def test_a_served_policy_computes_in_one_thread_whatever_the_environment_says(
    imported: str, tmp_path: Path
) -> None:
    # Given a policy that reports in its spec how many threads torch uses
    (tmp_path / "probe-1.dist-info").mkdir()
    (tmp_path / "probe-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1\n")
    (tmp_path / "probe-1.dist-info" / "entry_points.txt").write_text("[headway.policies]\nprobe = probe_rule:Probe\n")
    at_once = "import torch" if imported == "with the policy's module" else ""
    (tmp_path / "probe_rule.py").write_text(_PROBE.format(torch=at_once))
    address = f"unix://{tmp_path / 'policy.sock'}"
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    # When it is served where several threads would be used
    with running(*serve_command("probe", address), env={"PYTHONPATH": path, "OMP_NUM_THREADS": "3"}):
        async with PolicyClient(address) as client:
            await eventually(client.healthy)
            # Then it computes in one
            assert (await client.describe(30.0)).source == "1 threads"
