"""Plans and what was done of them, as text for operators and as JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from controller.base.text import encodable

if TYPE_CHECKING:
    from slurm.setup.draft import FileChange
    from slurm.setup.files import Written
    from slurm.setup.plan import SetupPlan
    from slurm.setup.spank_plan import SpankPlan
    from slurm.setup.undo_plan import UndoPlan


def plan_json(plan: SetupPlan, written: list[Written], applied: bool) -> str:
    """Return the document of `headway-setup slurm --json`."""
    document = {
        "complete": plan.complete,
        "applied": applied,
        "changes": _change_rows(plan.changes, written),
        "conflicts": [{"key": conflict.key, "text": encodable(conflict.text)} for conflict in plan.conflicts],
        "notes": [encodable(note) for note in plan.notes],
        "next_steps": [encodable(step) for step in plan.next_steps],
    }
    return json.dumps(document, indent=2)


def undo_json(plan: UndoPlan, written: list[Written], applied: bool) -> str:
    """Return the document of `headway-setup slurm --undo --json`."""
    document = {
        "complete": plan.complete,
        "applied": applied,
        "changes": _change_rows(plan.changes, written),
        "removed": [str(removal.path) for removal in plan.removals],
        "waiting": [str(path) for path in plan.waiting],
        "conflicts": [{"key": conflict.key, "text": encodable(conflict.text)} for conflict in plan.conflicts],
        "notes": [encodable(note) for note in plan.notes],
        "next_steps": [encodable(step) for step in plan.next_steps],
    }
    return json.dumps(document, indent=2)


def spank_json(plan: SpankPlan, written: list[Written], applied: bool) -> str:
    """Return the document of `headway-setup spank --json`."""
    build = plan.build
    document = {
        "complete": plan.complete,
        "applied": applied,
        "plugin": str(plan.plugin),
        "build": build
        and {"compiler": " ".join(build.compiler), "include": str(build.include), "slurm": build.release},
        "changes": _change_rows((plan.plugstack,) if plan.plugstack else (), written),
        "conflicts": [{"key": conflict.key, "text": encodable(conflict.text)} for conflict in plan.conflicts],
        "notes": [encodable(note) for note in plan.notes],
        "next_steps": [encodable(step) for step in plan.next_steps],
    }
    return json.dumps(document, indent=2)


def _change_rows(changes: tuple[FileChange, ...], written: list[Written]) -> list[dict[str, object]]:
    backups = {item.path: item.backup for item in written}
    return [
        {
            "path": encodable(str(change.path)),
            "new": change.before is None,
            "diff": encodable(change.diff),
            "backup": str(backups[change.path]) if backups.get(change.path) else None,
        }
        for change in changes
    ]


def plan_text(plan: SetupPlan, written: list[Written], applied: bool) -> str:
    """Return the text of `headway-setup slurm`."""
    blocks = [change.diff if change.before is not None else f"new file: {change.path}\n" for change in plan.changes]
    return _report(blocks, plan, bool(plan.changes), written, applied)


def undo_text(plan: UndoPlan, written: list[Written], applied: bool) -> str:
    """Return the text of `headway-setup slurm --undo`."""
    blocks = [change.diff for change in plan.changes]
    done = "removed" if applied else "to remove"
    kept = ", which was changed; a copy is kept"
    blocks += [f"{done}: {removal.path}{kept if removal.keep_copy else ''}\n" for removal in plan.removals]
    blocks += [f"to remove later: {path}, which slurmctld or jobs may still run\n" for path in plan.waiting]
    changes = bool(plan.changes or plan.removals)
    return _report(blocks, plan, changes, written, applied, "nothing of Headway is left in slurm.conf\n")


def spank_text(plan: SpankPlan, written: list[Written], applied: bool) -> str:
    """Return the text of `headway-setup spank`."""
    blocks = []
    if build := plan.build:
        compiler = " ".join(build.compiler)
        blocks.append(
            f"to build: {plan.plugin}, with {compiler} and the headers of Slurm {build.release} in {build.include}\n"
        )
    if plan.plugstack:
        blocks.append(plan.plugstack.diff)
    return _report(blocks, plan, plan.changes, written, applied)


def _report(
    blocks: list[str],
    plan: SetupPlan | SpankPlan | UndoPlan,
    changes: bool,
    written: list[Written],
    applied: bool,
    complete: str = "everything is in place\n",
) -> str:
    """Text of a plan: its changes, conflicts, notes and next steps."""
    blocks = [*blocks]
    blocks += [f"needs your decision: {conflict.key}: {conflict.text}\n" for conflict in plan.conflicts]
    blocks += [f"note: {note}\n" for note in plan.notes]
    if applied:
        blocks += [
            f"written: {item.path}" + (f" (copy of the old file: {item.backup})\n" if item.backup else "\n")
            for item in written
        ]
    if (changes or applied or plan.conflicts) and plan.next_steps:
        heading = "now:" if applied else "after --apply:"
        blocks.append("\n".join([heading, *(f"  {n}. {step}" for n, step in enumerate(plan.next_steps, 1))]) + "\n")
    if plan.complete:
        blocks.append(complete)
    elif changes and not applied:
        blocks.append("nothing was written; use --apply to write the changes\n")
    return encodable("\n".join(block.rstrip("\n") for block in blocks))
