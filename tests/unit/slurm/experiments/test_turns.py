"""Turns of policies, without a cluster: a policy that the controller refuses is an error with the reason."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from slurm.experiments.errors import ExperimentError
from slurm.experiments.turns.live_cluster import LiveCluster
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation


class RefusingInstallation(Installation):
    """Its controller takes no policy, and its services do not run."""

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start nothing."""

    def wait(self, ready: Callable[[], bool], name: str, timeout_s: float = 0.0) -> None:
        """Do not wait."""

    def headway(self, *words: str, timeout_s: float = 60.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Refuse as `headway policy use` does."""
        done = subprocess.CompletedProcess(words, 1, stdout="", stderr="headway: the policy needs rounds\n")
        if check:
            done.check_returncode()
        return done


def test_a_policy_that_the_controller_refuses_is_an_error_with_the_reason(tmp_path: Path) -> None:
    cluster = LiveCluster(RefusingInstallation(tmp_path), cast(MiniCluster, None), tmp_path)
    with (
        pytest.raises(ExperimentError, match="dl2 cannot decide: headway: the policy needs rounds"),
        cluster.decided_by("dl2"),
    ):
        pytest.fail("it does not decide")
