"""Jobs that are in each other's way, and preemptions of the past, for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from controller.base.config import ControllerSettings
from controller.contention.relocation import Relocations
from controller.contention.threshold import Case
from controller.observe.observer import Observer
from controller.preempt.preemptibility import Preemptibility
from controller.profiles.current import Contention, ContentionByRun
from controller.profiles.sensitivity import Ideal, IdealSource, Sensitivity
from controller.profiles.windows import Links, Neighbour, RunKey, RunShape, Throughput, Trained, own_nodes
from controller.slurm.model.job import SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from tests.unit.controller.examples.build import NOW_S, running, snapshot

DL = frozenset({"dl"})
WINDOW_S = 30.0
LONG_AGO_S = NOW_S - 3000
TRAINED = Trained(1000, "train.py", "ab" * 32)
ALWAYS = Preemptibility(PreemptionMethod.CHECKPOINT)


def settings(**changes: Any) -> ControllerSettings:
    """Automatic in partition dl."""
    return ControllerSettings(**{"partitions": ("dl", "cpu"), "preemption": "automatic", **changes})


def training(number: int, nodes: str, *, gpus: int = 2, **changes: Any) -> SlurmJob:
    """A job that has run for 50 minutes on these nodes ("n1 n2"), with as many GPUs on each."""
    on = dict.fromkeys(nodes.split(), gpus)
    return running(str(number), on=on, raw_id=number, **{"since": LONG_AGO_S, "time_limit_s": None, **changes})


def pace(
    number: int,
    value: float,
    *beside: int,
    start_s: float = NOW_S - WINDOW_S,
    confidence: float = 0.9,
    restart: int = 0,
    nodes: tuple[str, ...] = ("n1", "n2"),
) -> Contention:
    """Return the contention of a run: its CS, and its neighbours."""
    window = Throughput(
        start_s=start_s, run=RunKey(number, restart), trained=TRAINED, shape=RunShape(4, len(nodes)), nodes=nodes, steps=90,
        steps_per_s=3.0, idle_gpus=0, sockets=None,
        neighbours=tuple(Neighbour(RunKey(other, 0), TRAINED, RunShape(4, 2), 3.0) for other in beside),
    )  # fmt: skip
    return Contention(window, Sensitivity(value, 3.0, Ideal(3.0 * value, IdealSource.STORE, confidence, 3)))


def known(*items: Contention) -> ContentionByRun:
    """Return contentions by run."""
    return {item.window.run: item for item in items}


def preemption(number: int, raw_id: int, asked_s: float, stage: Stage = Stage.RESUMED, **changes: Any) -> Preemption:
    """One of the past, that went through in ten seconds."""
    base = Preemption(
        number=number, job_id=str(raw_id), raw_id=raw_id, restarts=0, submit_time_s=0, cause=Cause.THRESHOLD,
        why="", way=PreemptionMethod.CHECKPOINT, force=False, nodes=("n1",),
        constraint=RelocationConstraint(), within_s=60.0, stage=stage, asked_s=asked_s,
        ended_s=asked_s + 10 if stage.ended else None,
    )  # fmt: skip
    return replace(base, **changes)


def case(
    jobs: Iterable[SlurmJob],
    measured: ContentionByRun,
    *,
    history: Collection[Preemption] = (),
    preemptibility: Callable[[SlurmJob], Preemptibility] = lambda _: ALWAYS,
    ledger: Ledger | None = None,
    nodes: Any = 4,
    links: Links = own_nodes,
    **changes: Any,
) -> Case:
    """Return a case for the threshold, on so many nodes of 8 GPUs."""
    ledger = ledger or Ledger()
    observation = Observer().observe(snapshot(*jobs, nodes=nodes), ledger, DL, measured)
    return Case(
        settings=settings(**changes),
        observation=observation,
        relocations=Relocations(observation, ledger.originals),
        history=history,
        preemptibility=preemptibility,
        now_s=NOW_S,
        links=links,
    )
