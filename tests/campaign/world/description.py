"""The embedded Slurm of a story, and its submissions in the words of sbatch."""

from __future__ import annotations

from collections.abc import Mapping

from controller.slurm.embedded import (
    ClusterDescription,
    GpuLimit,
    NodeDescription,
    PartitionDescription,
    Submission,
    sbatch_request,
)
from tests.campaign.plot.story import JobSpec, Story


def submission_of(spec: JobSpec, ids: Mapping[int, list[str]], now_s: float, partition: str = "dl") -> Submission:
    """Return the sbatch command of a step. `partition`: Headway's."""
    if spec.gpus_in_all is not None:
        asked = sbatch_request(gpus=spec.gpus_in_all, nodes=(spec.nodes, spec.most_nodes or spec.nodes))
    else:
        asked = sbatch_request(gpus_per_node=spec.gpus_per_node, nodes=spec.nodes)
    after = [f"{kind}:{ids[label][0].split('_')[0]}" for kind, label in spec.after if ids.get(label)]
    traps = {"TERM"} if spec.ignores_term else set()
    return Submission(
        request=asked,
        duration_s=spec.duration_s,
        user=spec.user,
        name=spec.name,
        account=spec.account,
        partition=partition if spec.managed else "other",
        time_limit_s=spec.time_limit_s,
        hold=spec.hold,
        begin_time_s=None if spec.begin_in_s is None else now_s + spec.begin_in_s,
        dependency=",".join(after),
        array=tuple(range(spec.array)),
        throttle=spec.throttle,
        features=spec.feature,
        requeue=spec.requeue,
        exit_code=spec.exit_code,
        comment=" ".join(filter(None, (spec.comment, "headway=preemptible" if spec.preemptible else ""))),
        traps=frozenset(traps | ({"USR1"} if spec.preemptible else set())),
        unfit_nodes=frozenset(spec.unfit),
        free_choice_only=spec.free_choice_only,
    )


def description_of(story: Story, names: list[str], limits: Mapping[str, int]) -> ClusterDescription:
    """Return the cluster of a story: the first two nodes have the feature `fast`."""
    fast, others = names[:2], names[2:]
    kinds = [NodeDescription(names=",".join(fast), gpus=story.gpus, features=("fast",))]
    if others:
        kinds.append(NodeDescription(names=",".join(others), gpus=story.gpus))
    return ClusterDescription(
        nodes=tuple(kinds),
        partitions=(PartitionDescription(name=story.partition), PartitionDescription(name="other")),
        limits=tuple(GpuLimit(user=user, gpus=gpus) for user, gpus in limits.items()),
        delays={"call_s": 0.01, "requeue_s": 5.0, "min_job_age_s": 60.0},  # type: ignore[arg-type]
    )
