"""The command line on the slurmctld of the fake pyslurm, and a job that runs there."""

from __future__ import annotations

from typing import Any

from tests.unit.controller.slurm.pyslurm.fake_pyslurm import FakePySlurm
from tests.unit.controller.slurm.scontrol.slurmctld import Slurmctld
from tests.unit.controller.slurm.scontrol.text import SUBMIT_S

_GPUS = {
    "gpu:g0": {"count": 1, "indexes": "0"},
    "gpu:g1": {"count": 0, "indexes": ""},
    "gpu:g2": {"count": 1, "indexes": "2"},
}
RUNNING: dict[str, Any] = {
    "state": "RUNNING",
    "state_reason": "None",
    "priority": 5,
    "start_time": SUBMIT_S + 1,
    "allocated_nodes": "n[1-2]",
    "layout": {name: {"cpu_ids": "0-3", "gres": _GPUS, "memory": 4000} for name in ("n1", "n2")},
}
"""Attributes of a running job that differ from those of a pending one."""


class Bridge(Slurmctld):
    """The command line on the same slurmctld: only the commands that must go that way."""

    def __init__(self, module: FakePySlurm) -> None:
        super().__init__()
        self._module = module

    def _update(self, job_id: str, changes: dict[str, str]) -> str:
        row = next(row for row in self._module.rows.values() if str(row.id) == job_id or f"{row.array_id}_" in job_id)
        for key, value in changes.items():
            match key:
                case "AdminComment":
                    row.admin_comment = value or None
                case "NumNodes":
                    row.num_nodes, row.max_nodes = (int(part) for part in value.split("-"))
                case "NumTasks":
                    row.ntasks = int(value)
                case "NumCPUs":
                    row.cpus = int(value)
                case "ReqNodeList":
                    row.required_nodes = value or None
                case "TresPerJob":
                    row.tres_per_job = None
                    row.requested_tres = None
                case "TresPerNode":
                    row.gres_per_node = {"gres/gpu": int(value.rpartition(":")[2])}
                case "Priority":
                    row.priority = int(value)
                    row.state_reason = "JobHeldAdmin"
                case "uhold":
                    row.state_reason = "JobHeldUser"
        return ""
