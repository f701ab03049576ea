"""From what single nodes saw of jobs to throughputs of whole jobs, window by window, with who was near. Pure.

A job's agents each tell how many steps its slowest rank there has made, and when the last of them ended. Two such sights
in one window give an exact rate, whatever was lost between them. Under data parallelism all ranks go at one pace, so the job's
rate is that of its slowest node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

NS = 1e-9
COVERED = 0.8
"""A job counts as there for the whole of a window when it was seen over this share of it."""

Links = Callable[[Collection[str]], Collection[str]]
"""The links and hosts that a job on these nodes uses: jobs that have one in common are neighbours."""


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """One run of one job: Slurm's numeric id, and how often it was requeued before."""

    job_id: int
    restart: int


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run trains: the key of profiles, with the shape besides."""

    uid: int
    script: str
    signature: str
    """Of the model; empty when not known."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One run of a job as one node saw it at one moment. Times on the controller's clock, but for those in `_ns`."""

    time_s: float
    node: str
    run: RunKey
    trained: Trained
    num_ranks: int
    """Ranks that have stepped there."""
    world_size: int | None
    gpus: int | None
    """GPUs that it holds there; None: not known."""
    idle_gpus: int | None
    sockets: int | None
    """NUMA nodes that its GPUs there are spread over; None: not known."""
    steps: int | None
    last_step_ns: int | None
    """CLOCK_MONOTONIC of the node."""
    monotonic_ns: int
    """The moment of the sight on that clock."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """GPUs (where they are not known: ranks) on so many nodes."""

    gpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job that shared a link or a host in a window."""

    run: RunKey
    trained: Trained | None
    """None: known to be there, but it reports nothing."""
    shape: Shape | None
    steps_per_s: float | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What one run achieved in one window. Invariant: the whole job was seen, and it and all neighbours were there throughout."""

    start_s: float
    run: RunKey
    trained: Trained
    shape: Shape
    nodes: tuple[str, ...]
    steps: int
    steps_per_s: float
    idle_gpus: int
    sockets: int | None
    """On one node: NUMA nodes that its GPUs are spread over; None on several, or where not known."""
    neighbours: tuple[Neighbour, ...]

    @property
    def alone(self) -> bool:
        """Whether nothing shared its links and hosts."""
        return not self.neighbours


@dataclass(frozen=True, slots=True)
class _Seen:
    """One run in one window, over all nodes."""

    run: RunKey
    trained: Trained
    nodes: tuple[str, ...]
    shape: Shape | None
    """None: not all of it was seen."""
    covered: bool
    """On all of its nodes, for the whole window."""
    steps: int
    steps_per_s: float | None
    idle_gpus: int
    sockets: int | None


def own_nodes(nodes: Collection[str]) -> Collection[str]:
    """The links of a cluster whose switch is never the bottleneck: the nodes themselves, each with its NIC and host."""
    return nodes


def observe_window(
    sights: Iterable[Sight],
    start_s: float,
    length_s: float,
    present: Mapping[str, Collection[int]],
    links: Links = own_nodes,
) -> list[Observation]:
    """What jobs achieved from `start_s` on; `present`: numeric ids of jobs known to be on a node, whether they report or not.

    Left out are jobs of which a node is missing, those that made no two steps, and windows in which the job or a neighbour came
    or went: what they would tell is a mixture.
    """
    by_run: dict[RunKey, dict[str, list[Sight]]] = defaultdict(lambda: defaultdict(list))
    for sight in sights:
        if start_s <= sight.time_s < start_s + length_s:
            by_run[sight.run][sight.node].append(sight)
    seen = [_seen(run, by_node, start_s, length_s) for run, by_node in sorted(by_run.items())]
    used = {item.run: frozenset(links(item.nodes)) for item in seen}
    silent = _silent(present, seen)
    found = []
    for item in seen:
        near = [other for other in seen if other is not item and used[other.run] & used[item.run]]
        whole = item.covered and all(other.covered for other in near)
        if item.shape is None or item.steps_per_s is None or not whole:
            continue
        neighbours = [Neighbour(other.run, other.trained, other.shape, other.steps_per_s) for other in near]
        neighbours += [
            Neighbour(RunKey(job_id, 0), None, None, None)
            for job_id, nodes in silent.items()
            if frozenset(links(nodes)) & used[item.run]
        ]
        found.append(
            Observation(
                start_s=start_s, run=item.run, trained=item.trained, shape=item.shape, nodes=item.nodes, steps=item.steps,
                steps_per_s=item.steps_per_s, idle_gpus=item.idle_gpus, sockets=item.sockets, neighbours=tuple(neighbours),
            )
        )  # fmt: skip
    return found


def _silent(present: Mapping[str, Collection[int]], seen: Sequence[_Seen]) -> dict[int, list[str]]:
    """Nodes by the id of jobs that are there and report nothing."""
    speaking = {item.run.job_id for item in seen}
    silent: dict[int, list[str]] = defaultdict(list)
    for node, jobs in sorted(present.items()):
        for job_id in sorted(set(jobs) - speaking):
            silent[job_id].append(node)
    return silent


def _seen(run: RunKey, by_node: Mapping[str, Sequence[Sight]], start_s: float, length_s: float) -> _Seen:
    ordered = {node: sorted(sights, key=lambda sight: sight.time_s) for node, sights in sorted(by_node.items())}
    newest = [sights[-1] for sights in ordered.values()]
    rates = [_rate(sights, start_s) for sights in ordered.values()]
    known = [rate for rate in rates if rate is not None]
    return _Seen(
        run=run,
        trained=_trained(newest),
        nodes=tuple(ordered),
        shape=_shape(newest),
        covered=all(_covered(sights, length_s) for sights in ordered.values()),
        steps=min((steps for steps, _ in known), default=0),
        steps_per_s=min(rate for _, rate in known) if len(known) == len(rates) else None,
        idle_gpus=sum(sight.idle_gpus or 0 for sight in newest),
        sockets=newest[0].sockets if len(newest) == 1 else None,
    )


def _covered(sights: Sequence[Sight], length_s: float) -> bool:
    """Whether the sights of a node span the window: with n of them the first and last are (n-1)/n of it apart at most."""
    if len(sights) < 2:
        return False
    span_s = sights[-1].time_s - sights[0].time_s
    return span_s + span_s / (len(sights) - 1) >= COVERED * length_s


def _rate(sights: Sequence[Sight], start_s: float) -> tuple[int, float] | None:
    """Steps and steps/s between the first and the last step that are known to have ended in the window."""
    ended = [
        (sight.steps, sight.last_step_ns)
        for sight in sights
        if sight.steps is not None
        and sight.last_step_ns is not None
        and sight.time_s - (sight.monotonic_ns - sight.last_step_ns) * NS >= start_s
    ]
    if not ended:
        return None
    (first_steps, first_ns), (last_steps, last_ns) = ended[0], ended[-1]
    if last_steps <= first_steps or last_ns <= first_ns:
        return None
    steps = last_steps - first_steps
    return steps, steps / ((last_ns - first_ns) * NS)


def _trained(newest: Sequence[Sight]) -> Trained:
    """What most of its nodes that know the model say."""
    known = [sight.trained for sight in newest if sight.trained.signature] or [sight.trained for sight in newest]
    return max(known, key=known.count)


def _shape(newest: Sequence[Sight]) -> Shape | None:
    """GPUs and nodes; None where a part of the job was not seen, or it is not known how large it is."""
    ranks = sum(sight.num_ranks for sight in newest)
    sizes = {sight.world_size for sight in newest if sight.world_size is not None}
    if ranks == 0 or (sizes and sizes != {ranks}):
        return None
    gpus = [sight.gpus for sight in newest]
    known = [count for count in gpus if count]
    return Shape(sum(known) if len(known) == len(gpus) else ranks, len(newest))
