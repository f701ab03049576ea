"""Have all ranks of a job saved the same step? What the agents of its nodes answered, put together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from protos.headway.v1 import agent_pb2

NOBODY_TRAINS = "nobody here trains"
"""How an agent begins that knows of no process of the job which trains."""


def saved_step(nodes: Collection[str], answers: Mapping[str, agent_pb2.CommandAnswer]) -> int | None:
    """Steps done at the checkpoint that all ranks have taken part in; None: not all have, as far as was answered.

    Nodes of the job on which none of its ranks trains may say so: the ranks of the others are counted.
    """
    saved = {node: answer.saved for node, answer in answers.items() if answer.accepted}
    if set(answers) != set(nodes) or any(refusal(node, answers) for node in nodes) or not saved:
        return None
    sizes, steps = {one.world_size for one in saved.values()}, {one.step for one in saved.values()}
    ranks = sorted(rank for one in saved.values() for rank in one.ranks)
    whole = len(sizes) == len(steps) == 1 and ranks == list(range(max(sizes)))
    return max(steps) if whole else None


def refusal(node: str, answers: Mapping[str, agent_pb2.CommandAnswer]) -> str:
    """Why that node will not have saved; empty: it has, has not answered yet, or has no ranks while another has."""
    answer = answers.get(node)
    if answer is None or answer.accepted:
        return ""
    elsewhere = any(other.accepted for other in answers.values())
    return (
        ""
        if elsewhere and answer.problem.startswith(NOBODY_TRAINS)
        else f"{node}: {answer.problem or 'no reason given'}"
    )


def problem(nodes: Collection[str], answers: Mapping[str, agent_pb2.CommandAnswer]) -> str:
    """Why this will come to nothing; empty: it may still, or has been done."""
    refusals = [refusal(node, answers) for node in sorted(answers)]
    # That nobody trains here says nothing while others have not answered.
    pending = set(answers) != set(nodes)
    firm = [one for one in refusals if one and not (pending and f": {NOBODY_TRAINS}" in one)]
    if firm:
        return "; ".join(firm[:3])
    if pending or saved_step(nodes, answers) is not None:
        return ""
    saved = [answer.saved for answer in answers.values() if answer.accepted]
    told = ", ".join(f"{len(one.ranks)} of {one.world_size} at step {one.step}" for one in saved)
    return f"the ranks that saved are not all of one program ({told})"
