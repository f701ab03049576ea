"""Makes stories from seeds: at least 50 operations and 5 faults each, and some scenes, whose steps seldom coincide by chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tests.campaign.plot.faults import FAULTS
from tests.campaign.plot.other_processes import ARGUMENTS as OTHER_PROCESSES
from tests.campaign.plot.other_processes import with_other_processes
from tests.campaign.plot.story import JobSpec, Step, Story
from tests.campaign.plot.texts import partition_of, users_of, with_texts

OPERATIONS_AT_LEAST = 50
FAULTS_AT_LEAST = 5
_SCENES_MOST = 5
_IN_A_CYCLE = 0.2
"""Share of the steps that happen at an await of the controller instead of at a time."""
_POLICIES = ("fifo-skip", "fifo", "sjf", "las", "srtf", "backfill")
_ANSWERS_S = (0.002, 0.1, 0.4, 0.4)
"""Rules answer at once; learned policies take up to the deadline."""
_VERBS = ("snapshot", "read", "hold", "unmark", "mark", "pin", "unpin", "release", "requeue_hold", "set_begin_time")
_TO_JOBS = ("user_hold", "user_hold", "cancel", "requeue")
_SIZES = (1, 2, 4)
"""Numbers of GPUs that jobs get by a resize."""
_USERS = ("alice", "alice", "bob", "carol")
_LIMITED = "bob"
"""User whom Slurm allows the GPUs of one node at a time, in some stories."""
_ALONE = "dave"
"""User with so few jobs that seldom one of them ends and lifts a limit."""
_MOODS = ("away", "slow", "sick", "raises", "unknown job", "unknown node", "too much")


def make_story(seed: int, *, plain: bool = False) -> Story:
    """Return the story of a seed. `plain`: with the texts that stories had before they got those of users."""
    chance = random.Random(f"headway story {seed}")
    nodes, gpus = chance.randint(2, 5), chance.choice((2, 4, 8))
    preemption = chance.random() < 0.6
    policy = "srtf" if preemption and chance.random() < 0.3 else chance.choice(_POLICIES)
    limits = {_LIMITED: gpus} if chance.random() < 0.5 else {}
    most_at_once = chance.choice((0, 4))
    maker = _Maker(chance, nodes, gpus)
    operations = chance.randint(OPERATIONS_AT_LEAST, OPERATIONS_AT_LEAST + 25)
    faults = chance.randint(FAULTS_AT_LEAST, FAULTS_AT_LEAST + 7)
    makers = {"operation": lambda: [maker.operation()], "fault": lambda: [maker.fault()], "scene": maker.scene}
    middle = ["operation"] * (operations - 4) + ["fault"] * faults + ["scene"] * chance.randint(1, _SCENES_MOST)
    chance.shuffle(middle)
    steps = [maker.submit() for _ in range(4)]
    steps += [step for kind in [*middle, "scene"] for step in makers[kind]()]
    # Generators of their own: stories of earlier versions keep their steps.
    steps = _with_later_faults(random.Random(f"headway later faults {seed}"), nodes, steps)
    steps = _with_a_controller_that_waits(random.Random(f"headway waits for a disk {seed}"), nodes, steps)
    steps = _with_other_sizes(random.Random(f"headway sizes {seed}"), steps)
    steps = with_other_processes(random.Random(f"headway other processes {seed}"), nodes, steps)
    steps = _with_changes_of_users(random.Random(f"headway changes of users {seed}"), steps)
    answer_s = random.Random(f"headway policy {seed}").choice(_ANSWERS_S)
    story = Story(seed, nodes, gpus, policy, preemption, tuple(steps), answer_s, limits, most_at_once)
    return story if plain else _with_texts_of_users(random.Random(f"headway texts {seed}"), story)


def _with_texts_of_users(chance: random.Random, story: Story) -> Story:
    partition, users = partition_of(chance), users_of(chance, dict.fromkeys((*_USERS, _ALONE)))
    limits = {users.get(user, user): most for user, most in story.limits.items()}
    steps = with_texts(chance, list(story.steps), users)
    return replace(story, steps=tuple(steps), limits=limits, partition=partition)


def _with_later_faults(chance: random.Random, nodes: int, steps: list[Step]) -> list[Step]:
    """Return the steps with one to three faults more, of the kinds that stories have had since, at random places."""
    steps = list(steps)
    for _ in range(chance.randint(1, 3)):
        maker = _Maker(chance, nodes, 1)
        verb = chance.choice(sorted(_LATER_ARGUMENTS))
        steps.insert(chance.randint(4, len(steps)), Step(0.0, verb, _LATER_ARGUMENTS[verb](maker, chance)))
    return steps


def _with_a_controller_that_waits(chance: random.Random, nodes: int, steps: list[Step]) -> list[Step]:
    """Return the steps with a SIGSTOP or SIGKILL of the controller after half of the slow disks, while they are slow."""
    maker, found = _Maker(chance, nodes, 1), []
    for step in steps:
        found.append(step)
        if step.verb == "disk_slow" and chance.random() < 0.5:
            verb = chance.choice(("stop_controller", "kill_controller"))
            after_s = round(chance.uniform(0.0, min(step.args["seconds"], 10.0)), 2)
            args = _ARGUMENTS[verb](maker, chance)
            args |= {"seconds": _seconds(chance, 20)} if verb == "stop_controller" else {}
            found.append(Step(after_s, verb, args))
    return found


def _with_other_sizes(chance: random.Random, steps: list[Step]) -> list[Step]:
    """Return the steps with a quarter of the preemptions as `headway resize`: the job continues with so many GPUs."""
    return [
        replace(step, args={**step.args, "gpus": chance.choice(_SIZES)})
        if step.verb == "preempt" and chance.random() < 0.25
        else step
        for step in steps
    ]


def _with_changes_of_users(chance: random.Random, steps: list[Step]) -> list[Step]:
    """Return the steps with changes of jobs by their users: at random times, and soon after some requeues and preemptions."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        after = step.verb in {"requeue", "preempt", "node_crashes", "stop_controller", "kill_controller"}
        if len(found) > 4 and chance.random() < (0.25 if after else 0.05):
            args = {"pick": chance.randrange(8), "less": chance.randint(1, 7)}
            found.append(Step(_seconds(chance, 4.0) if after else 0.0, "user_changes", args))
    return found


class _Maker:
    """Makes one step after the other."""

    def __init__(self, chance: random.Random, nodes: int, gpus: int) -> None:
        self._chance, self._nodes, self._gpus = chance, nodes, gpus
        self._labels = 0

    def operation(self) -> Step:
        """Return an operation of a user or an operator."""
        makers: list[tuple[float, Callable[[], Step]]] = [
            (14, self.submit),
            (5, lambda: self._of_job("user_hold")),
            (4, lambda: self._of_job("user_release")),
            (3, lambda: self._of_job("cancel")),
            (0.5, lambda: self._step("cancel_preempted")),
            (1.5, lambda: self._of_job("requeue")),
            (0.7, lambda: self._of_job("suspend")),
            (0.7, lambda: self._of_job("resume")),
            (5, self._preempt),
            (1.5, self._policy_use),
            (0.7, self._reload),
            (0.7, lambda: self._step("drain", node=self._node())),
            (1.2, lambda: self._step("undrain", node=self._node())),
            (0.3, lambda: self._step("partition_down")),
            (0.6, lambda: self._step("partition_up")),
            (0.7, lambda: self._step("restart_controller")),
        ]
        weights, calls = zip(*makers, strict=True)
        return self._chance.choices(calls, weights)[0]()

    def submit(self, *, trains: bool = False, unfit: bool = False, **fixed: Any) -> Step:
        """Return a submission, of every kind. `unfit`: Slurm refuses it on some node. `fixed`: values that are not random."""
        chance = self._chance
        label, self._labels = self._labels, self._labels + 1
        spec: dict[str, Any] = {
            "label": label,
            "duration_s": round(chance.choice((2, 5, 10, 20, 40)) * chance.uniform(0.5, 1.5), 1),
        }
        kind = chance.random()
        if kind < 0.25 and not unfit:
            most = chance.randint(1, self._nodes)
            spec |= {"gpus_in_all": chance.choice((1, 2, self._gpus)) * most, "nodes": 1, "most_nodes": most}
            spec["gpus_in_all"] = min(spec["gpus_in_all"], most * self._gpus)
        else:
            spec |= {"gpus_per_node": chance.randint(1, self._gpus), "nodes": chance.randint(1, min(self._nodes, 3))}
        if not trains and chance.random() < 0.12:
            spec |= {"array": chance.randint(2, 4), "throttle": chance.choice((0, 0, 1, 2))}
        elif trains or chance.random() < 0.4:
            spec |= {"trains": True, "duration_s": round(chance.uniform(20, 80), 1)}
        elif chance.random() < 0.15:
            spec |= {"preemptible": True, "duration_s": round(chance.uniform(20, 80), 1)}
        if label and chance.random() < 0.1:
            spec["after"] = ((chance.choice(("afterok", "afterany")), chance.randrange(max(label - 4, 0), label)),)
        options: list[tuple[float, dict[str, Any]]] = [
            (0.06, {"hold": True}),
            (0.05, {"begin_in_s": round(chance.uniform(1, 60))}),
            (0.05, {"exit_code": 1}),
            (0.05, {"ignores_term": True}),
            (0.05, {"managed": False}),
            (0.04, {"requeue": False}),
            (0.05, {"free_choice_only": True}),
            (0.04, {"time_limit_s": 30.0}),
        ]
        for share, more in options:
            if chance.random() < share:
                spec |= more
        if not unfit and chance.random() < 0.06 and spec.get("nodes", 1) <= 2 and spec.get("most_nodes", 1) <= 2:
            spec["feature"] = "fast"
        elif (unfit or chance.random() < 0.05) and spec.get("nodes", 1) < self._nodes and "gpus_in_all" not in spec:
            most = self._nodes - spec["nodes"] if unfit else 1
            spec["unfit"] = tuple(sorted({self._node() for _ in range(most)}))
        spec["user"] = chance.choice(_USERS)
        spec |= fixed
        if spec["user"] == _LIMITED and (spec.get("gpus_in_all") or spec["gpus_per_node"] * spec["nodes"]) > self._gpus:
            spec["user"] = _USERS[0]
        return Step(self._pause(), "submit", asdict(JobSpec(**spec)))

    def fault(self, verb: str = "", /, **args: Any) -> Step:
        """Return a fault."""
        chance = self._chance
        verb = verb or chance.choices(list(_ARGUMENTS), [_WEIGHTS.get(name, 1.0) for name in _ARGUMENTS])[0]
        return self._step(verb, **{**_ARGUMENTS[verb](self, chance), **args})

    def scene(self) -> list[Step]:
        """Return steps that belong together."""
        scenes = (
            self._wrong_clock, self._ids_again, self._ids_again_meanwhile, self._end_of_a_preemption, self._slow_stop,
            self._holds, self._placed_slowly, self._changed_mind, self._away, self._taken_in, self._limited,
            self._burst, self._silent_agents,
        )  # fmt: skip
        return self._chance.choice(scenes)()

    def _wrong_clock(self) -> list[Step]:
        """Return jobs that few nodes accept, while the clock is wrong."""
        seconds, lasts_s = self._chance.choice((3600.0, 3600.0, -3600.0)), round(self._chance.uniform(10, 30), 1)
        jump = self.fault("clock_jumps", seconds=seconds, lasts_s=lasts_s)
        user = self._chance.choice((_USERS[0], _ALONE))
        return [jump, *(self._soon(self.submit(unfit=True, user=user)) for _ in range(self._chance.randint(1, 3)))]

    def _ids_again(self) -> list[Step]:
        """Let slurmctld lose its newest jobs in the middle of a cycle, and give their ids to other jobs."""
        lost = self._chance.randint(1, 3)
        crash = self.fault("slurmctld_crashes", lose_newest=lost, away_s=round(self._chance.uniform(0.2, 5), 2))
        before = [self._soon(self.submit()) for _ in range(lost)]
        after = [self._soon(self.submit()) for _ in range(lost)]
        verb = self._chance.choice(("pin", "hold", "release", "unmark"))
        late = [self._slow(verb), *before, self._at(1.0, self._step("wait"))]
        before = self._chance.choice((before, late))
        return [*before, crash, *after, *(self._newest(self._chance.choice(_TO_JOBS)) for _ in range(2))]

    def _ids_again_meanwhile(self) -> list[Step]:
        """The same while the controller is away, and the new job is requeued before it is back."""
        lost = self._chance.randint(1, 2)
        before = [self._soon(self.submit(trains=True)) for _ in range(lost)]
        back_s = round(self._chance.uniform(30, 40), 1)
        gone = self._chance.choice(
            (self.fault("kill_controller", awaits=1, back_in_s=back_s), self.fault("stop_controller", seconds=back_s))
        )
        crash = self.fault("slurmctld_crashes", lose_newest=lost, away_s=0.5)
        after = [self._at(1.0, self.submit(trains=True)) for _ in range(lost)]
        labels = [step.args["label"] for step in after]
        requeued = [self._at(0.1, self._step("requeue", label=label, task=-1)) for label in labels]
        requeued[0] = replace(requeued[0], after_s=8.0)
        return [*before, self._at(6.0, gone), self._at(15.5, crash), *after, *requeued]

    def _end_of_a_preemption(self) -> list[Step]:
        """Cancel a job while it is preempted, and lose answers of Slurm."""
        verb = self._chance.choice(("requeue_hold", "requeue_hold", "read", "set_begin_time"))
        trouble = self.fault(self._chance.choice(("reply_lost", "request_lost", "refused", "slow")), verb=verb)
        return [self.submit(trains=True), self._preempt(), self._soon(trouble), self._step("cancel_preempted")]

    def _slow_stop(self) -> list[Step]:
        """The order to stop a job takes slurmctld long, and meanwhile the job is cancelled or requeued."""
        seconds = round(self._chance.uniform(3, 12), 1)
        slow = self.fault("slow", verb="requeue_hold", seconds=seconds, lasts_s=30.0)
        verb = self._chance.choice(("cancel_preempted", "cancel_preempted", "requeue_preempted"))
        job = self.submit(trains=True, nodes=1, gpus_per_node=1, gpus_in_all=None, most_nodes=None, array=0)
        soon = round(self._chance.uniform(1, 3), 2)
        return [
            job,
            self._at(10.0, slow),
            self._at(0.1, self._step("preempt", pick=-1)),
            self._at(soon, self._step(verb)),
        ]

    def _placed_slowly(self) -> list[Step]:
        """Users hold jobs that are being placed, while slurmctld is slow."""
        small: dict[str, Any] = {"nodes": 1, "gpus_per_node": 1, "gpus_in_all": None, "most_nodes": None, "hold": False}
        slow = self._slow(self._chance.choice(("pin", "pin", "release")))
        jobs = [self._at(0.1, self.submit(**small)) for _ in range(2)]
        labels = [step.args["label"] for step in jobs]
        pauses = [round(self._chance.uniform(0.3, 2.0), 2) for _ in labels]
        held = [self._step("user_hold", label=label, task=-1) for label in labels]
        return [slow, *jobs, *(self._at(pause, step) for pause, step in zip(pauses, held, strict=True))]

    def _changed_mind(self) -> list[Step]:
        """A user holds a job and releases it again, while slurmctld is slow and an answer is lost."""
        waits = self.submit(begin_in_s=float(self._chance.randint(20, 60)), array=0, hold=False)
        slow, label = self._slow("mark"), waits.args["label"]
        held = self._at(round(self._chance.uniform(0.5, 3), 2), self._step("user_hold", label=label))
        free = self._at(round(self._chance.uniform(1, 3), 2), self._step("user_release", label=label))
        lost = self.fault(self._chance.choice(("request_lost", "request_lost", "reply_lost")), verb="unmark")
        killed = self.fault("kill_controller", awaits=self._chance.randint(1, 20), back_in_s=1.0)
        return [waits, slow, held, free, self._at(0.0, self._chance.choice((lost, lost, killed)))]

    def _limited(self) -> list[Step]:
        """A user has more jobs than may run at a time."""
        job: dict[str, Any] = {"user": _LIMITED, "nodes": 1, "gpus_in_all": None, "most_nodes": None}
        size = self._chance.randint(self._gpus // 2 + 1, self._gpus)
        return [
            self._soon(self.submit(trains=True, gpus_per_node=size, **job)) for _ in range(self._chance.randint(3, 4))
        ]

    def _burst(self) -> list[Step]:
        """Many small jobs at a time."""
        job: dict[str, Any] = {"nodes": 1, "gpus_per_node": 1, "gpus_in_all": None, "most_nodes": None, "array": 0}
        return [self._at(0.02, self.submit(**job)) for _ in range(self._chance.randint(6, 10))]

    def _holds(self) -> list[Step]:
        """Let a user hold a job, and interrupt Headway while it processes the hold."""
        holds = [self._soon(self.submit()), *(self._newest("user_hold") for _ in range(2))]
        verb = self._chance.choice(("mark", "unmark", "unmark", "hold", "release"))
        broken = self.fault(self._chance.choice(("reply_lost", "request_lost", "refused", "cut_short")), verb=verb)
        killed = self.fault("kill_controller", awaits=self._chance.randint(1, 60), back_in_s=1.0)
        return [*holds[:2], self._soon(self._chance.choice((broken, killed))), holds[2], self._newest("user_release")]

    def _away(self) -> list[Step]:
        """Kill or stop the controller while users go on; then it runs again."""
        back_s = round(self._chance.uniform(16, 40), 1)
        gone = self._chance.choice(
            (
                self.fault("kill_controller", back_in_s=back_s),
                self.fault("stop_controller", seconds=back_s),
                self.fault(self._chance.choice(_JOURNAL_FAULTS), back_in_s=back_s),
            )
        )
        jobs = [self.submit() for _ in range(self._chance.randint(2, 4))]
        befalls = [self._newest(self._chance.choice(_TO_JOBS)) for _ in range(6)]
        return [gone, self._step("wait"), *jobs, *befalls]

    def _taken_in(self) -> list[Step]:
        """Jobs that were submitted without a controller are held while slurmctld is slow, and so by their users."""
        gone = self.fault("kill_controller", awaits=1, back_in_s=20.0)
        seconds = round(self._chance.uniform(1, 4), 1)
        slow = self.fault("slow", verb="hold", seconds=seconds, lasts_s=20.0)
        jobs = [self.submit(begin_in_s=float(self._chance.randint(20, 60)), hold=False, array=0) for _ in range(2)]
        held = self._step("user_hold", label=jobs[1].args["label"])
        held = self._at(round(1.5 + self._chance.uniform(0.2, seconds), 2), held)
        return [gone, self._at(17.0, jobs[0]), self._at(0.1, jobs[1]), self._at(0.1, slow), held]

    def _silent_agents(self) -> list[Step]:
        """All agents but one fall silent while a job is stopped."""
        job = self.submit(trains=True, nodes=1, gpus_per_node=1, gpus_in_all=None, most_nodes=None, array=0)
        others = [f"n{number}" for number in range(1, self._nodes)]
        away = [self._at(0.0, self.fault("agent_killed", node=node, seconds=60.0)) for node in others]
        away[0] = replace(away[0], after_s=round(self._chance.uniform(0.4, 1.2), 2))
        return [job, self._at(15.0, self._step("preempt", pick=-1)), *away]

    def _slow(self, verb: str) -> Step:
        """From now on a change takes slurmctld some seconds."""
        seconds, lasts_s = round(self._chance.uniform(1, 5), 1), round(self._chance.uniform(10, 40), 1)
        return self._at(0.1, self.fault("slow", verb=verb, seconds=seconds, lasts_s=lasts_s))

    def _at(self, after_s: float, step: Step) -> Step:
        """The step so many seconds after the one before."""
        return replace(step, after_s=after_s, awaits=0)

    def _soon(self, step: Step) -> Step:
        return replace(step, after_s=round(self._chance.uniform(0.0, 0.5), 4))

    def _newest(self, verb: str) -> Step:
        """Return an operation on one of the newest jobs, at an await of the controller."""
        label = self._chance.randrange(max(self._labels - 3, 0), self._labels)
        return replace(self._step(verb, label=label, task=-1), awaits=self._chance.randint(1, 120))

    def _preempt(self) -> Step:
        chance = self._chance
        how: dict[str, Any] = {"pick": chance.randrange(20)}
        if chance.random() < 0.4:
            how["avoid"] = (self._node(),)
        if chance.random() < 0.1:
            how["force"] = True
        return self._step("preempt", **how)

    def _policy_use(self) -> Step:
        return self._step("policy_use", name=self._chance.choice(("srtf", "fifo-skip", "nowhere")))

    def _reload(self) -> Step:
        return self._step("reload_settings", poll_interval_s=float(self._chance.randint(2, 20)))

    def _of_job(self, verb: str, **more: Any) -> Step:
        newest = self._chance.random() < 0.5
        first = max(self._labels - 6, 0) if newest else 0
        label = self._chance.randrange(first, self._labels)
        return self._step(verb, label=label, task=self._chance.randint(-1, 3), **more)

    def _step(self, verb: str, /, **args: Any) -> Step:
        in_a_cycle = "awaits" not in args and verb != "submit" and self._chance.random() < _IN_A_CYCLE
        return Step(self._pause(), verb, args, self._chance.randint(1, 120) if in_a_cycle else 0)

    def _pause(self) -> float:
        chance = self._chance
        kind = chance.random()
        if kind < 0.35:
            return round(chance.uniform(0.0, 0.1), 4)
        return round(chance.uniform(0.1, 2.0), 3) if kind < 0.8 else round(chance.uniform(2.0, 12.0), 2)

    def _node(self) -> str:
        return f"n{self._chance.randint(1, self._nodes)}"


def _seconds(chance: random.Random, most: float) -> float:
    return round(chance.uniform(0.2, most), 2)


_ARGUMENTS: dict[str, Callable[[_Maker, random.Random], dict[str, Any]]] = {
    "kill_controller": lambda _, c: {
        "awaits": c.choice((1, 5, 20, 60, 200)) + c.randrange(40),
        "back_in_s": _seconds(c, 40),
    },
    "stop_controller": lambda _, c: {
        "seconds": _seconds(c, 60),
        "awaits": c.choice((0, 1, 5, 20, 60)) + c.randrange(10),
    },
    "kill_watchdog": lambda _, c: {"awaits": 1 + c.randrange(30)},
    "machine_sleeps": lambda _, c: {"seconds": _seconds(c, 120)},
    "slurmctld_away": lambda _, c: {"seconds": _seconds(c, 40)},
    "slurmctld_crashes": lambda _, c: {"lose_newest": c.choice((0, 0, 1, 3)), "away_s": _seconds(c, 20)},
    "request_lost": lambda _, c: {"verb": c.choice(_VERBS)},
    "reply_lost": lambda _, c: {"verb": c.choice(_VERBS)},
    "cut_short": lambda _, c: {"verb": c.choice(_VERBS), "jobs": c.randrange(3)},
    "refused": lambda _, c: {"verb": c.choice(_VERBS[2:])},
    "slow": lambda _, c: {"verb": c.choice(_VERBS), "seconds": _seconds(c, 8), "lasts_s": _seconds(c, 60)},
    "task_fails": lambda _, c: {"pick": c.randrange(8)},
    "policy_fails": lambda _, c: {"mood": c.choice(_MOODS), "seconds": _seconds(c, 60)},
    "agent_killed": lambda m, c: {"node": m._node(), "seconds": _seconds(c, 40)},
    "node_crashes": lambda m, c: {"node": m._node(), "seconds": _seconds(c, 40)},
    "clock_jumps": lambda _, c: {"seconds": c.choice((-3600.0, -20.0, 20.0, 3600.0)), "lasts_s": _seconds(c, 60)},
    "disk_full": lambda _, c: {"seconds": _seconds(c, 40)},
    "journal_damaged": lambda _, c: {"seed": c.randrange(1 << 30), "back_in_s": _seconds(c, 20)},
    "journal_rows_damaged": lambda _, c: {"seed": c.randrange(1 << 30), "back_in_s": _seconds(c, 20)},
    "journal_of_another_version": lambda _, c: {"version": c.choice((1, 2, 3, 999)), "back_in_s": _seconds(c, 20)},
}
_LATER_ARGUMENTS: dict[str, Callable[[_Maker, random.Random], dict[str, Any]]] = {
    "agent_lies": lambda m, c: {
        "node": m._node(),
        "seed": c.randrange(1 << 30),
        "every_s": c.choice((0.1, 0.5, 2.0)),
        "seconds": _seconds(c, 90),
    },
    "disk_slow": lambda _, c: {"by_s": c.choice((0.05, 0.3, 1.0, 4.0)), "seconds": _seconds(c, 60)},
}
_JOURNAL_FAULTS = ("journal_damaged", "journal_rows_damaged", "journal_of_another_version")
_WEIGHTS = {"kill_controller": 5.0, "stop_controller": 2.0, "reply_lost": 2.0, "cut_short": 2.0}
assert _ARGUMENTS.keys() | _LATER_ARGUMENTS.keys() | OTHER_PROCESSES.keys() == FAULTS.keys()
