"""Texts of Slurm on the whole way of a cycle: snapshot, observation, message, state of a policy, decision, plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from controller.base.errors import SlurmError
from controller.cycle.decision.plan import Plan, make_plan
from controller.cycle.room.partitions import where_they_fit
from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observation, Observer
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.client import SlurmFacts
from controller.slurm.model.cluster import SlurmNode, SlurmSnapshot
from controller.slurm.model.job import SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.model.shares import Shares
from controller.slurm.priorities.preemption import PreemptionRules
from controller.slurm.priorities.weights import weights_of
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.run import Completed
from controller.state.ledger import Estimate, Ledger
from policies.api import load_policy
from policies.model import ClusterState
from policies.wire.messages import parse_state, serialize_state, state_digest
from tests.fuzz.target import BrokenPromiseError, Target
from tests.fuzz.targets.slurm_texts import at_once, jobs, recorded
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, SUBMIT_S, at, job_line, node_line

_NOW_S = float(SUBMIT_S + 100)
_PARTITIONS = frozenset({"dl", "short", "debug"})
_CUT = b"\n----\n"
_QUERIES = ("show job", "show node", "show partition", "show reservation", "show config", "sshare", "sacctmgr")
"""Order of the sections in an input."""
_MOST_DECIDED = 1000
"""Jobs and nodes up to which the policy decides: the policy's time for more of them is not this target's concern."""
_POLICIES = (
    load_policy("fifo-skip"),
    load_policy("fifo-skip", {"order": "slurm"}),
    load_policy("backfill", {"order": "slurm"}),
)
"""Two simple ones, and the default of installations."""
_CONFIG = (
    "ClusterName             = test\nPriorityType            = priority/multifactor\nPriorityWeightAge       = 1000\n"
    "PriorityWeightFairShare = 100000\nPriorityWeightJobSize   = 10\nPriorityWeightPartition = 10\n"
    "PriorityWeightQOS       = 500\nPriorityWeightTRES      = CPU=10,Mem=20,GRES/gpu=30\nPriorityMaxAge          = 7-00:00:00\n"
    "PreemptType             = preempt/qos\nPreemptMode             = REQUEUE\n"
)
_SSHARE = "root|||1.000000\nroot|ann||0.500000\nteam|bob|dl|0.250000"
_SACCTMGR = "normal|0||cluster||00:00:00\nhigh|1000|normal|requeue|00:10:00|00:00:30"


def cycles() -> list[bytes]:
    """Return whole readings: jobs of ours that wait and run, with foreign ones, nodes, partitions, and the settings of Slurm."""
    ours = {"admin_comment": HOLD_MARK}
    on_two = {"nodes": "n[1-2]", "num_nodes": "2", "num_cpus": "8", "tres": "cpu=8,mem=8000M,node=2,gres/gpu=8"}
    queue = [
        job_line(**ours),
        job_line(raw="8", gpus="TresPerJob=gres:gpu:6 ", comment="headway=preemptible+min-gpus:2+steps:900", **ours),
        job_line(
            raw="9", array="ArrayJobId=9 ArrayTaskId=0-3 ", partition="dl,short", account="team", user="bob", **ours
        ),
        job_line(
            raw="10", gpus="TresPerTask=gres:gpu:1 ", num_tasks="4", num_cpus="8", memory="MinMemoryNode=2G", **ours
        ),
        job_line(raw="11", features="fast&big", oversubscribe="NO", time_limit="1-00:00:00", qos="high", **ours),
        job_line(raw="12", priority="5", reason="Priority", dependency="afterok:7(unfulfilled)"),
    ]
    running = [
        job_line(**RUNNING | {"raw": "20"}),
        job_line(**RUNNING | on_two | {"raw": "21", "details": "", "gpus": "TresPerJob=gres:gpu:8 "}),
        job_line(
            **RUNNING | {"raw": "22", "batch": "0", "nodes": "n2", "details": "", "tres": "cpu=2,node=1,gres/gpu=1"}
        ),
        job_line(**RUNNING | {"raw": "23", "state": "COMPLETING", "nodes": "n3", "tres": "cpu=6,node=3,gres/gpu=6"}),
    ]
    nodes = [node_line(f"n{number}") for number in range(1, 5)] + [
        node_line("n5", "MIXED+DRAIN", more=" Reason=a [b@c] ")
    ]
    partitions = [
        "PartitionName=dl AllowGroups=ALL Nodes=n[1-5] MaxTime=7-00:00:00 State=UP PriorityTier=2 MaxNodes=4",
        "PartitionName=short AllowGroups=ALL Nodes=n[3-4] MaxTime=01:00:00 State=UP PriorityJobFactor=5 MinNodes=1",
    ]
    reserved = (
        f"ReservationName=r StartTime={at(SUBMIT_S + 200)} EndTime={at(SUBMIT_S + 900)} Nodes=n[1-2] State=ACTIVE"
    )
    rest = ["\n".join(nodes), "\n".join(partitions), reserved, _CONFIG, _SSHARE, _SACCTMGR]
    plain = ["\n".join(nodes), "\n".join(partitions), "No reservations in the system"]
    texts = [["\n".join([*queue, *running]), *rest], ["\n".join(queue), *plain], ["\n".join(running), *plain]]
    texts += [[line, *plain] for line in (*queue, *running)]
    cases = [_CUT.join(f"{part}\n".encode() for part in text) for text in texts]
    tail = _CUT.join(f"{part}\n".encode() for part in plain)
    cases += [each.rstrip(b"\n") + b"\n" + _CUT + tail for each in jobs()]
    for number, each in enumerate(recorded("show-node.txt")):
        parts = recorded("show-partition.txt")
        cases.append(
            _CUT.join(["\n".join([*queue, *running]).encode(), each, parts[number % len(parts)] if parts else b""])
        )
    return cases


class _Programs:
    """A CommandRunner whose programs print the sections of one input. A query of one job is answered with all jobs."""

    def __init__(self, sections: Mapping[str, bytes]) -> None:
        self._sections = sections

    async def run(self, program: str, words: Sequence[str], text: bytes = b"") -> Completed:
        if program != "scontrol":
            return Completed((program, *words), 0, self._sections[program].removesuffix(b"\n"), "")
        printed = [self._answer(line) for line in text.decode().splitlines()]
        return Completed((program, *words), 0, b"".join(printed), "")

    def _answer(self, line: str) -> bytes:
        if line.startswith("show hostnames "):
            return line.removeprefix("show hostnames ").encode() + b"\n"
        if line == "version":
            return b"slurm 22.05.8\n"
        return self._sections[next(name for name in _QUERIES if line.startswith(name))] + b"\n"


def go_round(data: bytes, _folder: Path) -> object:
    """Carry the texts through two cycles of one controller, up to the plan. Equal texts give equal observations."""
    found = data.split(_CUT)
    sections = dict(zip(_QUERIES, [*found, *[b""] * len(_QUERIES)], strict=False))
    client = CommandLineClient(_Programs(sections), CLOCK, now=lambda: _NOW_S)
    knowledge = Knowledge()
    if sections["show config"]:
        knowledge.set_priorities(_priorities(client))
    observer, ledger = Observer(knowledge), Ledger()
    ledger.estimates[("ann", "train")] = Estimate(500.0, 20.0, 3)
    first, again = (_observed(client, observer, ledger) for _ in range(2))
    if state_digest(first.state) != state_digest(again.state):
        raise BrokenPromiseError("the same texts give another state")
    return _decided(_arrived(first.state))


def _observed(client: CommandLineClient, observer: Observer, ledger: Ledger) -> Observation:
    snapshot = cast("SlurmSnapshot", at_once(client.snapshot()))
    _require_texts(snapshot)
    return where_they_fit(observer.observe(snapshot, ledger, _PARTITIONS))


def _require_texts(snapshot: SlurmSnapshot) -> None:
    """Require that SQLite and protobuf take each text of a job or node. Only the admin comment is kept as it was read."""
    things: tuple[SlurmJob | SlurmNode, ...] = (*snapshot.jobs, *snapshot.nodes)
    for thing in things:
        for name in type(thing).__slots__:
            value = getattr(thing, name)
            if isinstance(value, str) and name != "admin_comment" and not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    raise BrokenPromiseError(f"{name} {value!r} can neither be stored nor sent") from None


def _priorities(client: CommandLineClient) -> PriorityFacts:
    """Return what the controller knows of Slurm's order. Raises SlurmError."""
    settings = cast("SlurmFacts", at_once(client.facts())).settings
    shares = cast("Shares", at_once(client.shares()))
    return PriorityFacts(weights_of(settings), shares, PreemptionRules.of(settings, shares))


def _arrived(state: ClusterState) -> ClusterState:
    """Return the state that a policy server reads. It is the same, but for names of users that are no UTF-8."""
    found = parse_state(serialize_state(state))
    sent = replace(state, jobs=replace(state.jobs, users=found.jobs.users))
    if len(state.jobs.users) != len(found.jobs.users) or state_digest(sent) != state_digest(found):
        raise BrokenPromiseError("another state arrives than was sent")
    return found


def _decided(state: ClusterState) -> object:
    """Return the plans of the policies' decisions: the controller accepts every one."""
    if max(len(state.jobs), len(state.nodes)) > _MOST_DECIDED:
        return state
    plans = []
    for policy in _POLICIES:
        plan = make_plan(state, policy.decide(state), policy.spec)
        if not isinstance(plan, Plan):
            raise BrokenPromiseError(f"{policy.spec.name} is refused: {plan.reason}")
        plans.append(plan)
    return plans


OBSERVATION = (
    Target(
        "observation",
        "texts of Slurm on the way of a whole cycle: snapshot, state, message, decision, plan",
        "text",
        cycles,
        go_round,
        (SlurmError,),
        cost=60,
        limit_s=10,
        growth_bytes=512 << 20,
    ),
)
