"""Decides from the agents' answers whether all ranks of a job have saved the same step. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from protos.headway.v1 import agent_pb2

_PASSING = frozenset(
    {agent_pb2.ANSWER_REASON_NO_TRAINERS, agent_pb2.ANSWER_REASON_TRAINED_ON, agent_pb2.ANSWER_REASON_RANKS_GONE}
)


def saved_step(nodes: Collection[str], answers: Mapping[str, agent_pb2.CommandAnswer]) -> int | None:
    """Return the steps done at the checkpoint in which all ranks took part; None: not all have answered that they did.

    Nodes of the job on which none of its ranks trains may answer so: the ranks of the others are counted.
    """
    saved = {node: answer.saved for node, answer in answers.items() if answer.accepted}
    if set(answers) != set(nodes) or any(refusal(node, answers) for node in nodes) or not saved:
        return None
    sizes, steps = {one.world_size for one in saved.values()}, {one.step for one in saved.values()}
    ranks = [rank for one in saved.values() for rank in one.ranks]
    size = max(sizes)
    whole = len(sizes) == len(steps) == 1 and len(ranks) == len(set(ranks)) == size and max(ranks, default=0) < size
    return max(steps) if whole else None


def refusal(node: str, answers: Mapping[str, agent_pb2.CommandAnswer]) -> str:
    """Return why that node will not save; empty: it has saved, has not answered yet, or has no ranks while another node has
    some."""
    answer = answers.get(node)
    if answer is None or answer.accepted:
        return ""
    if no_rank_trains(answer) and any(other.accepted for other in answers.values()):
        return ""
    return f"{node}: {answer.problem or 'no reason given'}"


def no_rank_trains(answer: agent_pb2.CommandAnswer) -> bool:
    """Return whether the agent knows no process of the job that trains. False for an answer without a reason, as older agents
    give."""
    return not answer.accepted and answer.reason == agent_pb2.ANSWER_REASON_NO_TRAINERS


def may_pass(answer: agent_pb2.CommandAnswer) -> bool:
    """Return whether a later answer may differ, because ranks connect to their agent again."""
    return not answer.accepted and answer.reason in _PASSING


def problem(nodes: Collection[str], answers: Mapping[str, agent_pb2.CommandAnswer]) -> str:
    """Return why the save cannot succeed any more; empty: it still may, or has succeeded."""
    pending = set(answers) != set(nodes)
    # While others have not answered, a node without training processes is no failure.
    counted = sorted(node for node in answers if not (pending and no_rank_trains(answers[node])))
    refusals = [text for node in counted if (text := refusal(node, answers))]
    if refusals:
        return "; ".join(refusals[:3])
    if pending or saved_step(nodes, answers) is not None:
        return ""
    saved = [(node, answers[node].saved) for node in sorted(answers) if answers[node].accepted]
    counts = ", ".join(f"{node}: {len(one.ranks)} of {one.world_size} at step {one.step}" for node, one in saved)
    return f"the ranks that saved are not all of one program ({counts})"
