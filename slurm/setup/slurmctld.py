"""Settings of the running slurmctld, which show what it uses of Headway."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from controller.slurm.configuration.conf import list_items
from slurm.errors import MiniClusterError
from slurm.processes import run

_TIMEOUT_S = 20.0
_LINE = re.compile(r"^(\w+)(?:\[\d+\])?\s+= (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunningSlurmctld:
    """Settings of a slurmctld that answered. Several values of one key, as Slurm 24.11 allows, are kept one by one."""

    settings: tuple[tuple[str, str], ...]

    def uses(self, key: str, path: Path) -> bool:
        """Return whether a setting names that program."""
        return (key, str(path)) in self.settings

    def loads_lua(self) -> bool:
        """Return whether slurmctld runs a job_submit.lua."""
        return any(key == "JobSubmitPlugins" and "lua" in _plugins(value) for key, value in self.settings)


def _plugins(value: str) -> list[str]:
    return [item.removeprefix("job_submit/") for item in list_items(value)]


def running_slurmctld(slurm_conf: Path) -> RunningSlurmctld | None:
    """Return the settings of the slurmctld that this slurm.conf leads to; None when none answers."""
    try:
        done = run(
            "scontrol", "show", "config", env={**os.environ, "SLURM_CONF": str(slurm_conf)}, timeout_s=_TIMEOUT_S
        )
    except MiniClusterError:
        return None
    return parse_settings(done.stdout)


def parse_settings(text: str) -> RunningSlurmctld:
    """Return the settings in the output of `scontrol show config`."""
    return RunningSlurmctld(tuple((found[1], found[2].strip()) for found in _LINE.finditer(text)))
