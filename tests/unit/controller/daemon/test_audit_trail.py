"""Requests that reach the controller by signals, by job_submit.lua, and what becomes of preemptions by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from controller.base.audit import AuditLog
from controller.base.config import ControllerSettings
from controller.daemon.audit_trail import AuditTrail
from controller.slurm.user_holds import Hold
from tests.unit.controller.worlds.world import World


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_users_hold_is_recorded_once(tmp_path: Path) -> None:
    # given two jobs, one of them held by its user before the controller started
    world = World(tmp_path)
    early, late = world.sbatch(user="ann"), world.sbatch(user="bob")
    trail = AuditTrail(AuditLog(world.clock, tmp_path / "audit.jsonl"))
    snapshot = await world.slurm.client.snapshot()
    trail.note_holds({early.job_id: Hold(5.0)}, snapshot)
    # when the other one is held, and cycles go by
    for _ in range(3):
        trail.note_holds({early.job_id: Hold(5.0), late.job_id: Hold(7.0)}, snapshot)
    trail.note_holds({}, snapshot)
    # and held again after a release
    trail.note_holds({late.job_id: Hold(9.0)}, snapshot)
    found = entries(tmp_path / "audit.jsonl")
    assert [(line["action"], line["job_id"], line["user"], line["details"]) for line in found] == [
        ("hold", early.job_id, "ann", {"time_s": 5.0}),
        ("hold", late.job_id, "bob", {"time_s": 7.0}),
        ("hold", late.job_id, "bob", {"time_s": 9.0}),
    ]
    assert found[0]["outcome"] == "accepted, at the latest before this start of the controller"
    assert found[1]["outcome"] == "accepted"


def test_a_reload_shows_what_has_changed(tmp_path: Path) -> None:
    before = ControllerSettings(partitions=("gpu",))
    after = before.model_copy(update={"policy_deadline_s": 2.0, "partitions": ("gpu", "dl")})
    world = World(tmp_path / "w")
    trail = AuditTrail(AuditLog(world.clock, tmp_path / "audit.jsonl"))
    trail.note_reload(before, after, ["metrics_address"])
    trail.note_refused_reload("controller.toml: polcy: unknown key")
    done, refused = entries(tmp_path / "audit.jsonl")
    assert done["details"] == {
        "changed": ["partitions: ('gpu',) -> ('gpu', 'dl')", "policy_deadline_s: 0.5 -> 2.0"],
        "need_restart": ["metrics_address"],
    }
    assert (done["outcome"], done["uid"]) == ("done", None)
    assert refused["outcome"] == "refused: controller.toml: polcy: unknown key"
