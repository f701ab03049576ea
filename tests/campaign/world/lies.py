"""Reports of an agent that lies: about jobs of any node, with any numbers, and answers to requests that it has not got.

An agent is believed about its own node, as slurmd is: if it says that its ranks have saved, and they have not, these steps are
lost. So a lying agent claims no save of a job that has ranks on its node. It may claim everything else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protos.headway.v1 import agent_pb2

_NS = 1_000_000_000
_NUMBERS = (0, 1, 2, 7, 1000, 2**31, 2**63 - 1)
_RESTARTS = (0, 1, 2, 3, 1000, 2**32 - 1)
_TIMES_S = (0.0, -1e9, 1e9, float("inf"), float("nan"))


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run of a job, as far as an agent that lies about it knows it."""

    job_id: int
    """Slurm's numeric id."""
    nodes: frozenset[str]
    save_ids: tuple[str, ...] = ()
    """Ids of requests to save that agents have received."""


Runs = Sequence[SeenRun]


def lie(chance: random.Random, node: str, runs: Runs, now_s: float) -> agent_pb2.AgentReport:
    """Return a report that is not true."""
    kinds: tuple[Callable[[random.Random, str, Runs], agent_pb2.AgentReport], ...] = (
        _job,
        _job,
        _ended,
        _refusal,
        _save,
    )
    report = chance.choice(kinds)(chance, node, runs)
    report.time_s = now_s if chance.random() < 0.7 else chance.choice(_TIMES_S)
    return report


def _job(chance: random.Random, _node: str, runs: Runs) -> agent_pb2.AgentReport:
    """A run of any job, which has made any steps and has any checkpoints."""

    def number() -> int:
        return chance.choice(_NUMBERS)

    told = agent_pb2.JobReport(
        job=_name(chance, runs),
        ranks=[number() % 2**32 for _ in range(chance.randint(0, 4))],
        world_size=number() % 2**32,
        monotonic_ns=number(),
    )
    if chance.random() < 0.7:
        told.checkpoint.ranks.extend(range(chance.randint(0, 4)))
        told.checkpoint.restored_step, told.checkpoint.saved_step = number(), number()
    if chance.random() < 0.7:
        told.steps, told.first_step_ns = number(), chance.randint(0, 2000) * _NS
    return agent_pb2.AgentReport(job=told)


def _ended(chance: random.Random, _node: str, runs: Runs) -> agent_pb2.AgentReport:
    """The end of a run that goes on."""
    return agent_pb2.AgentReport(ended=agent_pb2.JobEnded(job=_name(chance, runs)))


def _refusal(chance: random.Random, _node: str, runs: Runs) -> agent_pb2.AgentReport:
    """The answer that ranks of this node do not save, for any reason."""
    why = chance.choice(agent_pb2.AnswerReason.values())
    return agent_pb2.AgentReport(answer=agent_pb2.CommandAnswer(id=_save_id(chance, runs), problem="a lie", reason=why))


def _save(chance: random.Random, node: str, runs: Runs) -> agent_pb2.AgentReport:
    """The answer that ranks have saved, of a job on other nodes or of none."""
    others = [run for run in runs if node not in run.nodes]
    saved = agent_pb2.SavedRanks(ranks=range(chance.randint(0, 4)), world_size=chance.randint(0, 4), step=1000)
    return agent_pb2.AgentReport(
        answer=agent_pb2.CommandAnswer(id=_save_id(chance, others), accepted=True, saved=saved)
    )


def _name(chance: random.Random, runs: Runs) -> agent_pb2.JobName:
    job_id = chance.choice(runs).job_id if runs and chance.random() < 0.9 else 2**40
    return agent_pb2.JobName(job_id=job_id, uid=chance.choice((0, 1000)), restart=chance.choice(_RESTARTS))


def _save_id(chance: random.Random, runs: Runs) -> str:
    known = [save_id for run in runs for save_id in run.save_ids]
    return chance.choice(known) if known and chance.random() < 0.8 else f"p{chance.randint(1, 9)}.1"
