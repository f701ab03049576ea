"""Text for users about the advice of the contention threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from controller.admin.explain.explain import Explained
from controller.base.apart import each
from controller.base.text import listed
from controller.profiles.current import run_of
from controller.slurm.model.job import SlurmJob
from protos.headway.v1 import admin_pb2

_CAUSES = {
    "power": "throttled by power", "thermal": "throttled by temperature", "xid": "with errors",
    "lost": "not found by the driver", "memory": "with faulty memory", "nvlink": "with errors of their NVLinks",
    "pcie": "with errors on PCIe",
}  # fmt: skip
"""Words for users. Invariant: each cause of report.Impairment has some."""

if TYPE_CHECKING:
    from controller.contention.service import ContentionService, StandingAdvice


def with_advice(found: Explained, judging: ContentionService | None, job: SlurmJob | None) -> Explained:
    """Return the explanation of a job with the threshold's advice on it added."""
    run = None if job is None else run_of(job)
    if judging is None or run is None:
        return found
    if (standing := judging.advice.get(run)) is not None:
        nodes = ",".join(standing.advice.place.nodes)
        facts = {
            **found.facts,
            "advice": "move",
            "advice_nodes": nodes,
            "advice_avoid": ",".join(sorted(standing.advice.place.constraint.avoid)),
            "advice_since_s": f"{standing.since_s:.3f}",
        }
        return replace(
            found, sentence=f"{found.sentence} It should be moved to {nodes}: {standing.advice.why}.", facts=facts
        )
    if (why_not := judging.stays.get(run)) is not None:
        sentence = f"{found.sentence} It should be moved, but cannot be moved now: {why_not}."
        return replace(found, sentence=sentence, facts={**found.facts, "advice": "none", "advice_why_not": why_not})
    return found


def with_impairment(found: Explained, impaired: Mapping[int, str], job: SlurmJob | None) -> Explained:
    """Return the explanation of a job, with the reason why its speed is not judged if its GPUs were throttled or failed."""
    causes = None if job is None or job.raw_id is None else impaired.get(job.raw_id)
    if causes is None:
        return found
    why = listed([_CAUSES.get(cause, cause) for cause in causes.split(",")])
    note = (
        f"GPUs of it were slower than they should be ({why}), so its speed at that time does not count as contention."
    )
    sentence = f"{found.sentence} {note}"
    return replace(found, sentence=sentence, facts={**found.facts, "impaired_gpus": causes})


def advice_messages(judging: ContentionService | None) -> Iterator[admin_pb2.MoveAdvice]:
    """Yield the advice on moving jobs, for a status."""
    if judging is None:
        return
    name = attrgetter("advice.job.key.job_id")
    yield from each("the status", judging.advice.values(), _advice_message, name)


def _advice_message(standing: StandingAdvice) -> admin_pb2.MoveAdvice:
    advice = standing.advice
    return admin_pb2.MoveAdvice(
        job_id=advice.job.key.job_id,
        why=advice.why,
        nodes=advice.place.nodes,
        avoid=sorted(advice.place.constraint.avoid),
        since_s=standing.since_s,
    )
