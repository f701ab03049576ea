"""Starts agents that lie (`liar.py`) in place of node agents, and reads what they have told."""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from slurm.minicluster.cluster import RunningCluster

_LIAR = Path(__file__).with_name("liar.py")
_ROOT = Path(__file__).parents[4]
_TOLD = re.compile(r"^(\d+) lies told, (\d+) acknowledged$", re.MULTILINE)
_ENDS_WITHIN_S = 15.0
_SHOWN = 1200


@dataclass(frozen=True, slots=True)
class Told:
    """Numbers of reports of one agent that lies."""

    lies: int
    acknowledged: int
    """Those of them that the controller has taken in, whether it used them or not."""
    problem: str = ""
    """End of its log if it failed: an error of the campaign."""

    def __str__(self) -> str:
        return f"{self.lies} lies told, {self.acknowledged} acknowledged"


def start_liar(cluster: RunningCluster, node: str, config: Path, seed: int, every_s: float) -> None:
    """Start an agent that lies on the node, with these settings of the node's agent, which must not run."""
    log = _log(config)
    log.unlink(missing_ok=True)
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    argv = (sys.executable, str(_LIAR), str(config), str(seed), str(every_s))
    cluster.start_on(node, *argv, log=log, env={"PYTHONPATH": os.pathsep.join(paths)})


def end_liar(cluster: RunningCluster, node: str, config: Path) -> Told:
    """Kill the agent that lies on the node, and return what it has told."""
    if (liar := cluster.program_on(node, _LIAR.name)) is not None:
        liar.send(signal.SIGKILL)
        liar.wait_gone(_ENDS_WITHIN_S)
    log = _log(config)
    return read_told(log.read_text() if log.exists() else "")


def read_told(log: str) -> Told:
    """Read the newest line about its reports; zeros when there is none yet."""
    numbers = _TOLD.findall(log)
    lies, acknowledged = map(int, numbers[-1]) if numbers else (0, 0)
    return Told(lies, acknowledged, log[-_SHOWN:] if "Traceback" in log else "")


def _log(config: Path) -> Path:
    return config.with_name("liar.log")
