"""Makes stories from seeds: at least 50 operations and 5 faults each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tests.campaign.plot.story import Step
from tests.campaign.real.faults.verbs import FAULTS
from tests.campaign.real.story import GPUS, NODES, STEPS_PER_S, USERS, RealStory, Submission

OPERATIONS_AT_LEAST = 50
FAULTS_AT_LEAST = 5
_POLICIES = ("fifo-skip", "fifo", "sjf", "las", "srtf")
_ROGUES = (
    "unknown-job",
    "unknown-node",
    "overcommitted",
    "half-a-gang",
    "wrong-sequence",
    "nan",
    "junk",
    "slow",
    "raises",
)
_PROGRAMS = ("scontrol", "scontrol", "scancel")


def make_real_story(seed: int, operations: int | None = None) -> RealStory:
    """Return the story of a seed; `operations` is their number if the seed is not to choose it."""
    chance = random.Random(f"headway real story {seed}")
    preemption = "automatic" if chance.random() < 0.7 else "off"
    policy = chance.choice(_POLICIES)
    maker = _Maker(chance)
    drawn = chance.randint(OPERATIONS_AT_LEAST, OPERATIONS_AT_LEAST + 10)
    kinds = ["operation"] * (drawn if operations is None else operations)
    kinds += ["fault"] * chance.randint(FAULTS_AT_LEAST, FAULTS_AT_LEAST + 4)
    middle = kinds[4:]
    chance.shuffle(middle)
    steps = [maker.submit() for _ in range(4)]
    steps += [maker.operation() if kind == "operation" else maker.fault() for kind in middle]
    # A generator of its own: stories of earlier versions keep their steps.
    steps = _with_later_faults(random.Random(f"headway later real faults {seed}"), steps)
    steps = _with_suspensions_and_damage(random.Random(f"headway suspended {seed}"), steps)
    return RealStory(seed, policy, preemption, tuple(steps))


def _with_later_faults(chance: random.Random, steps: list[Step]) -> list[Step]:
    """Return the steps with an agent that lies, a slow disk or both, and half of the slow disks with a controller that is stopped
    or killed while they are slow. They come early enough to last."""
    maker, steps = _Maker(chance), list(steps)
    for verb in chance.choice((("agent_lies",), ("disk_slow",), ("agent_lies", "disk_slow"))):
        at = chance.randint(4, len(steps) * 2 // 3)
        found = [Step(0.0, verb, _LATER_ARGUMENTS[verb](maker, chance))]
        if verb == "disk_slow" and chance.random() < 0.5:
            then = chance.choice(("stop_controller", "kill_controller"))
            found.append(Step(round(chance.uniform(0.0, 2.0), 2), then, _ARGUMENTS[then](maker, chance)))
        steps[at:at] = found
    return steps


def _with_suspensions_and_damage(chance: random.Random, steps: list[Step]) -> list[Step]:
    """Return the steps with one or two jobs that root suspends for a while, and in half of the stories with a damaged journal."""
    steps = list(steps)
    for verb in ("suspend",) * chance.randint(1, 2) + ("journal_damaged",) * chance.randint(0, 1):
        args: dict[str, Any] = {"pick": chance.randrange(20), "seconds": round(chance.uniform(1.0, 12.0), 2)}
        if verb == "journal_damaged":
            args = {
                "seed": chance.randrange(1 << 30),
                "running": chance.random() < 0.5,
                "back_in_s": round(chance.uniform(0.2, 8.0), 2),
            }
        steps.insert(chance.randint(8, len(steps) * 4 // 5), Step(0.0, verb, args))
    return steps


class _Maker:
    """Makes one step after the other."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._labels = 0

    def operation(self) -> Step:
        """Return something that a user or an operator does."""
        makers: list[tuple[float, Callable[[], Step]]] = [
            (14, self.submit),
            (5, lambda: self._of_job("user_hold")),
            (5, lambda: self._of_job("user_release")),
            (4, lambda: self._of_job("cancel")),
            (2.5, lambda: self._of_job("requeue")),
            (11, self._preempt),
            (0.7, lambda: self._step("policy_use", other=self._chance.random() < 0.5)),
            (0.7, lambda: self._step("reload_settings", poll_interval_s=float(self._chance.randint(2, 6)))),
            (0.7, lambda: self._step("drain", node=self._node())),
            (1.2, lambda: self._step("undrain", node=self._node())),
            (0.3, lambda: self._step("partition_down")),
            (0.6, lambda: self._step("partition_up")),
            (0.7, lambda: self._step("reconfigure")),
            (0.7, lambda: self._step("restart_controller")),
        ]
        weights, calls = zip(*makers, strict=True)
        make: Callable[[], Step] = self._chance.choices(calls, weights)[0]
        return make()

    def submit(self) -> Step:
        """Return a submission, of every kind."""
        chance = self._chance
        label, self._labels = self._labels, self._labels + 1
        spec: dict[str, Any] = {
            "label": label,
            "user": chance.choice(USERS),
            "steps": round(chance.uniform(0.5, 2.5) * STEPS_PER_S),
        }
        if chance.random() < 0.2:
            spec["gpus_in_all"] = chance.choice((1, 2, 4, GPUS, 2 * GPUS))
        else:
            spec |= {"gpus_per_node": chance.choice((1, 1, 2, 4, GPUS)), "nodes": chance.choice((1, 1, 1, 2, NODES))}
        if chance.random() < 0.12:
            spec |= {"array": chance.randint(2, 4), "throttle": chance.choice((0, 0, 1, 2))}
        if chance.random() < 0.5:
            spec |= {"saves": True, "steps": round(chance.uniform(4.0, 10.0) * STEPS_PER_S)}
        if label and chance.random() < 0.1:
            spec["after"] = ((chance.choice(("afterok", "afterany")), chance.randrange(max(label - 4, 0), label)),)
        options: list[tuple[float, dict[str, Any]]] = [
            (0.06, {"hold": True}),
            (0.05, {"begin_in_s": chance.randint(2, 6)}),
            (0.05, {"exit_code": 1}),
            (0.04, {"ignores_term": True}),
            (0.05, {"managed": False}),
            (0.04, {"requeue": False}),
        ]
        for share, more in options:
            if chance.random() < share:
                spec |= more
        if chance.random() < 0.08 and spec.get("nodes", 1) == 1 and spec.get("gpus_in_all", 0) <= GPUS:
            spec["feature"] = "fast"
        return Step(self._pause(), "submit", asdict(Submission(**spec)))

    def fault(self) -> Step:
        """Return something that breaks."""
        verb = self._chance.choices(list(_ARGUMENTS), [_WEIGHTS.get(name, 1.0) for name in _ARGUMENTS])[0]
        return Step(self._pause(), verb, _ARGUMENTS[verb](self, self._chance))

    def _preempt(self) -> Step:
        chance = self._chance
        how: dict[str, Any] = {
            "pick": chance.randrange(20),
            "action": chance.choice(("preempt", "preempt", "move", "resize")),
        }
        if how["action"] == "resize":
            how["gpus"] = chance.choice((1, 2, 4))
        if chance.random() < 0.1:
            how["force"] = True
        return self._step("preempt", **how)

    def _of_job(self, verb: str) -> Step:
        newest = self._chance.random() < 0.6
        label = self._chance.randrange(max(self._labels - 5, 0) if newest else 0, self._labels)
        return self._step(verb, label=label, task=self._chance.randint(-1, 3))

    def _step(self, verb: str, **args: Any) -> Step:
        return Step(self._pause(), verb, args)

    def _pause(self) -> float:
        chance = self._chance
        return round(chance.uniform(0.0, 0.1) if chance.random() < 0.6 else chance.uniform(0.1, 1.2), 3)

    def _node(self) -> str:
        return f"n{self._chance.randint(1, NODES)}"


def _seconds(chance: random.Random, most: float) -> float:
    return round(chance.uniform(0.2, most), 2)


_ARGUMENTS: dict[str, Callable[[_Maker, random.Random], dict[str, Any]]] = {
    "kill_controller": lambda _, c: {"back_in_s": _seconds(c, 12)},
    "stop_controller": lambda _, c: {"seconds": _seconds(c, 12)},
    "kill_policy": lambda _, c: {"back_in_s": _seconds(c, 8)},
    "stop_policy": lambda _, c: {"seconds": _seconds(c, 8)},
    "rogue_policy": lambda _, c: {"kind": c.choice(_ROGUES), "seconds": 2.0 + _seconds(c, 8)},
    "kill_watchdog": lambda _, c: {"back_in_s": _seconds(c, 5)},
    "stop_watchdog": lambda _, c: {"seconds": _seconds(c, 8)},
    "kill_agent": lambda m, c: {"node": m._node(), "back_in_s": _seconds(c, 8)},
    "stop_agent": lambda m, c: {"node": m._node(), "seconds": _seconds(c, 8)},
    "stop_slurmctld": lambda _, c: {"seconds": _seconds(c, 4)},
    "restart_slurmctld": lambda _, c: {"back_in_s": _seconds(c, 3)},
    "kill_slurmd": lambda m, c: {"node": m._node(), "back_in_s": _seconds(c, 5)},
    "stop_slurmd": lambda m, c: {"node": m._node(), "seconds": _seconds(c, 5)},
    "kill_slurmstepd": lambda _, c: {"pick": c.randrange(20)},
    "disk_full": lambda _, c: {"seconds": _seconds(c, 10)},
    "slow": lambda _, c: {"program": c.choice(_PROGRAMS), "by_s": _seconds(c, 3), "seconds": _seconds(c, 10)},
    "request_lost": lambda _, c: {"program": c.choice(_PROGRAMS)},
    "answer_lost": lambda _, c: {"program": c.choice(_PROGRAMS)},
}
_LATER_ARGUMENTS: dict[str, Callable[[_Maker, random.Random], dict[str, Any]]] = {
    "agent_lies": lambda m, c: {
        "node": m._node(),
        "seed": c.randrange(1 << 30),
        "every_s": c.choice((0.05, 0.2, 1.0)),
        "seconds": round(c.uniform(10.0, 40.0), 2),
    },
    "disk_slow": lambda _, c: {
        "bytes_per_s": c.choice((2_000.0, 10_000.0, 40_000.0)),
        "seconds": round(c.uniform(3.0, 15.0), 2),
    },
}
_WEIGHTS = {
    "kill_controller": 4.0, "stop_controller": 2.0, "kill_slurmstepd": 2.0, "answer_lost": 2.0, "kill_agent": 1.5,
}  # fmt: skip
assert _ARGUMENTS.keys() | _LATER_ARGUMENTS.keys() | {"journal_damaged"} == FAULTS.keys()
