"""An emulated training job, whose speed follows from the jobs beside it: job.py NAME MODEL COMPUTE_S BYTES GPUS ALONE_S [measured]

No GPU and no network is used. Each job registers its nodes in the folder `world`, and looks there several times a second for the
jobs that use the same links: a ring of several nodes shares the NIC of each with all other such rings there, and if it spans
racks, the uplinks with all others that do. A link is divided by the number of jobs on it. The job ends when its steps are done.

With `measured`, one task runs on each node, and reports to the node's agent over the job socket what the hook of headway_job
reports of a real training: its steps, its model, and the parts of a step.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

_TICK_S = 0.25
WORLD = Path("world")
"""A file for each job that runs: its name is the job's id, "@", and its nodes, separated by commas."""
LINKS = Path("links.json")
"""Speeds of the links, GB/s, and nodes and GPUs of a rack and a node."""


class World:
    """The jobs that run, and the links that they share."""

    def __init__(self, links: dict[str, float]) -> None:
        """`links` has `nic` and `uplink` in GB/s, `nodes_of_rack` and `gpus` of a node."""
        self._links = links

    def rack(self, node: str) -> int:
        """Return the rack of a node n1, n2, ..."""
        return (int(node.lstrip("n")) - 1) // int(self._links["nodes_of_rack"])

    def used(self, nodes: Collection[str]) -> set[str]:
        """Return the links of a job on these nodes; none on one node."""
        if len(nodes) < 2:
            return set()
        racks = {self.rack(node) for node in nodes}
        return {*nodes, *(f"rack {rack}" for rack in racks if len(racks) > 1)}

    def gbyte_s(self, nodes: Collection[str], others: Collection[Collection[str]]) -> float:
        """Return the speed of the job's narrowest link, as it is shared with the other jobs; infinite on one node."""
        crowd = [self.used(other) for other in others]
        shares = (
            self._links["uplink" if link.startswith("rack") else "nic"] / (1 + sum(link in used for used in crowd))
            for link in self.used(nodes)
        )
        return min(shares, default=math.inf)

    def speed(self, nodes: Collection[str], others: Collection[Collection[str]], step: Step) -> float:
        """Return the speed relative to that alone on the fewest nodes of one rack, at most 1."""
        fewest = math.ceil(step.gpus / self._links["gpus"])
        now_s = step.seconds(len(nodes), self.gbyte_s(nodes, others))
        return min(1.0, step.seconds(fewest, self._links["nic"]) / now_s)


class Step:
    """The step of a model on so many GPUs."""

    def __init__(self, compute_s: float, size: float, gpus: int) -> None:
        """`size` is the number of bytes of the gradients."""
        self.compute_s, self.bytes, self.gpus = compute_s, size, gpus

    def communicate_s(self, nodes: int, gbyte_s: float) -> float:
        """Return the seconds of the reduction over a ring of so many nodes."""
        return 2 * (nodes - 1) / nodes * self.bytes / (gbyte_s * 1e9)

    def seconds(self, nodes: int, gbyte_s: float) -> float:
        """Return the seconds of the whole step."""
        return self.compute_s + self.communicate_s(nodes, gbyte_s)


def main() -> None:
    """Train to the end."""
    name, model, alone_s = sys.argv[1], sys.argv[2], float(sys.argv[6])
    step = Step(float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    words = ("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
    nodes = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    world = World(json.loads(LINKS.read_text()))
    if sys.argv[7:] == ["measured"]:
        _report(model, step, len(nodes), world.gbyte_s(nodes, ()), alone_s)
        return
    own = WORLD / f"{os.environ['SLURM_JOB_ID']}@{','.join(nodes)}"
    own.touch()
    try:
        _train(world, own, step, alone_s)
    finally:
        own.unlink()
    racks = {world.rack(node) for node in nodes}
    Path(f"{name}.where").write_text(f"{len(nodes)} {len(racks)}\n")


def _train(world: World, own: Path, step: Step, alone_s: float) -> None:
    """Sleep until so many seconds of work alone are done, at the speed of each moment."""
    last_s, left_s = time.monotonic(), alone_s
    while True:
        jobs = [path.name for path in WORLD.iterdir()]
        speed = world.speed(_nodes(own.name), [_nodes(job) for job in jobs if job != own.name], step)
        time.sleep(min(_TICK_S, left_s / speed))
        now_s = time.monotonic()
        left_s -= (now_s - last_s) * speed
        last_s = now_s
        if left_s <= 1e-6:
            return


def _nodes(job: str) -> list[str]:
    return job.partition("@")[2].split(",")


def _report(model: str, step: Step, nodes: int, gbyte_s: float, length_s: float) -> None:
    """Report steps that are made alone on these nodes, for so long."""
    from headway_job.hook.agent_socket import AgentSocket  # only with agents

    step_s = step.seconds(nodes, gbyte_s)
    first_ns = time.monotonic_ns()
    socket = AgentSocket(os.environ["HEADWAY_JOB_SOCKET"])
    for kind, fields in _introduction(model, step, nodes, gbyte_s):
        socket.send(kind, fields)
    sent = 1
    while (passed_s := (time.monotonic_ns() - first_ns) / 1e9) < length_s:
        steps = 1 + int(passed_s / step_s)
        if steps > sent:
            window = {"window_steps": steps - sent, "window_s": (steps - sent) * step_s}
            last_ns = first_ns + round((steps - 1) * step_s * 1e9)
            socket.send("steps", {"steps": steps, "first_ns": first_ns, "last_ns": last_ns, **window})
            sent = steps
        while socket.receive() is not None:
            pass
        time.sleep(1.0)
    socket.send("bye", {})
    socket.close()


def _introduction(model: str, step: Step, nodes: int, gbyte_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the frames before the first steps: the process, its model, and the profile of a step."""
    from headway_job.hook.process_facts import hello

    rank = int(os.environ["SLURM_PROCID"])
    yield "hello", hello("cpu", (rank, nodes), 0)
    signature = hashlib.sha256(model.encode()).hexdigest()
    size = int(step.bytes)
    facts = {"param_bytes": size, "num_tensors": 1, "num_params": size // 4, "optimizers": 1, "groups": []}
    yield "model", {**facts, "signature": signature, "batch_size": -1}
    communicate_s = step.communicate_s(nodes, gbyte_s)
    reduce = {"count": 1.0, "bytes": float(size), "seconds": communicate_s, "link_bytes": float(size)}
    parts = {"compute_s": step.compute_s, "comm_exposed_s": communicate_s, "comm_hidden_s": 0.0}
    local = {"local_exposed_s": 0.0, "local_hidden_s": 0.0}
    yield (
        "profile",
        {"steps": 20, "step_s": step.compute_s + communicate_s, **parts, "kinds": {"all_reduce": reduce}, **local},
    )


if __name__ == "__main__":
    main()
