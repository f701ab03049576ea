"""Plays one story on the cluster: operations and faults, then every fault is ended, and every job has to end."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm.minicluster.host.network import CONTROLLER
from slurm.processes import wait_until
from tests.campaign.plot.story import Step
from tests.campaign.real.drain import drain_story
from tests.campaign.real.faults.programs import mend_programs
from tests.campaign.real.faults.verbs import FAULTS, FaultNotPossibleError
from tests.campaign.real.logs import OwnErrors
from tests.campaign.real.model import Expected, RealModel, RealPromise, RealViolation
from tests.campaign.real.operations import OPERATIONS, resume_due
from tests.campaign.real.records import SACCT, Line, Row, by_job, parse_log, parse_releases, parse_sacct
from tests.campaign.real.scene import Scene
from tests.campaign.real.story import RealStory
from tests.campaign.real.world import MANAGED, World

_COMES_BACK_S = 150.0
"""Longest time for processes to be back after all faults, on a busy machine."""
_ACCOUNTED_S = 30.0
"""Longest time until slurmdbd has every end."""


@dataclass(slots=True)
class RealPlayed:
    """Result of a story."""

    seed: int
    violations: list[RealViolation]
    operations: int
    faults: Counter[str]
    jobs: int
    runs: int
    saves: int
    preemptions: int
    """Requests of operators that Headway accepted."""
    refused: Counter[str]
    """Reason → requests of operators that were not accepted."""
    continues: int
    """Runs that began at a saved step."""
    known: list[str]
    """Events that the known limits explain."""
    took_s: float
    notes: list[str]
    folder: Path
    effects: Counter[str] = field(default_factory=Counter)
    """Events that show that faults had an effect: lies that the controller acknowledged, writes to a slow disk."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Faults that are not possible on this machine, with the reason."""


def play_real(world: World, story: RealStory) -> RealPlayed:
    """Play the story on an idle cluster, and leave the cluster idle."""
    scene = _begin(world, story)
    errors = OwnErrors(world)
    faults: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for step in story.steps:
        time.sleep(step.after_s)
        resume_due(scene, time.monotonic())
        if step.verb in OPERATIONS:
            OPERATIONS[step.verb](scene, **step.args)
        elif why := inject(scene, step):
            left_out[f"{step.verb}: {why}"] += 1
        else:
            faults[step.verb] += 1
    _mend(scene)
    scene.model.known += drain_story(scene)
    rows, logs = _records(scene)
    scene.model.releases = parse_releases(world.cluster.files.log_of(CONTROLLER).read_text(errors="replace"))
    scene.model.check(rows, logs)
    for text in [*errors.found(), *world.ends, *(f"the campaign itself: {text}" for text in world.healer.problems)]:
        scene.model.broken(RealPromise.NO_BUG, "", text)
    world.ends.clear()
    world.healer.problems.clear()
    return RealPlayed(
        seed=story.seed,
        violations=scene.model.violations,
        operations=sum(step.verb in OPERATIONS for step in story.steps),
        faults=faults,
        jobs=len(scene.model.jobs),
        runs=sum(row.ran for job_id in scene.model.jobs for row in rows.get(job_id, ())),
        saves=sum(line.what == "saved" for lines in logs.values() for line in lines),
        preemptions=scene.preemptions,
        refused=scene.refused,
        continues=sum(line.what == "start" and line.step > 0 for lines in logs.values() for line in lines),
        known=scene.model.known,
        took_s=time.time() - scene.begun_s,
        notes=scene.notes,
        folder=scene.folder,
        effects=scene.effects,
        left_out=left_out,
    )


def inject(scene: Scene, step: Step) -> str:
    """Inject a fault. Return the reason why that is not possible here, or empty."""
    scene.note(f"fault {step.verb} {dict(step.args)}")
    try:
        with scene.world.healer.lock:
            FAULTS[step.verb](scene, **step.args)
    except FaultNotPossibleError as error:
        return str(error)
    return ""


def _begin(world: World, story: RealStory) -> Scene:
    """Make the folder of the jobs; choose policy and preemption."""
    folder = world.cluster.files.work / f"story-{story.seed}"
    folder.mkdir()
    folder.chmod(0o777)
    if world.policy != story.policy:
        world.policy = story.policy
        with world.healer.lock:
            world.end_politely("policy")
            world.start("policy")
    wait_until(lambda: world.headway.try_ask("status") is not None, _COMES_BACK_S, 0.2)
    world.reload(preemption=story.preemption, poll_interval_s=3.0)
    world.operator("policy", "use", world.headway.policy_address)
    world.alone_s.clear()
    model = RealModel(alone_s=world.alone_s, preemptive=story.preemption == "automatic")
    return Scene(world, model, folder, story.seed)


def _mend(scene: Scene) -> None:
    """End every fault, and let operators undo what they did."""
    world = scene.world
    world.healer.heal_all()
    mend_programs(world.programs)
    with world.healer.lock:
        for process in ("policy", "other", "controller", "watchdog"):
            world.send(process, signal.SIGCONT)
            world.start(process)
        for node in world.cluster.node_names:
            world.agent(node, signal.SIGCONT)
            world.start_agent(node)
    for words in (
        (f"partitionname={MANAGED}", "state=up"),
        *((f"nodename={node}", "state=resume") for node in world.cluster.node_names),
    ):
        world.user(None, "scontrol", "update", *words)
    resume_due(scene, float("inf"))
    if scene.asks_nodes:
        world.user(None, "scontrol", "reconfigure")
    world.operator("policy", "use", world.headway.policy_address)
    scene.note("all faults ended")
    if not wait_until(world.lease_is_fresh, _COMES_BACK_S, 0.2):
        scene.model.broken(RealPromise.LEASE, "", f"not fresh {_COMES_BACK_S:g} s after all faults have ended")


def _records(scene: Scene) -> tuple[dict[str, list[Row]], dict[str, list[Line]]]:
    """Return the accounting and the logs of all jobs, once slurmdbd has every end."""
    deadline = time.monotonic() + _ACCOUNTED_S
    while True:
        rows = _accounting(scene)
        missing = [
            job_id
            for job_id, expected in scene.model.jobs.items()
            if not any(row.ended for row in rows.get(job_id, ()))
            and not _is_struck_out(scene, expected)
            and not _is_cancelled_while_requeued(expected, rows.get(job_id, ()))
        ]
        if not missing or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    for job_id in missing:
        scene.model.broken(RealPromise.NOT_HELD_FOR_EVER, job_id, f"no end in the accounting: {rows.get(job_id)}")
    logs = {path.stem: parse_log(path.read_text()) for path in scene.folder.glob("*.log")}
    return rows, logs


def _is_struck_out(scene: Scene, expected: Expected) -> bool:
    """Return whether Slurm has only struck a cancelled task out of its array, which leaves nothing in the accounting."""
    cancelled = expected.cancelled_s is not None or expected.maybe_cancelled
    return bool(expected.spec.array) and cancelled and not (scene.folder / f"{expected.job_id}.log").exists()


def _is_cancelled_while_requeued(expected: Expected, rows: Sequence[Row]) -> bool:
    """Return whether a job was cancelled while the run that was requeued was ending: the accounting of Slurm has no end then."""
    cancelled = expected.cancelled_s is not None or expected.maybe_cancelled
    return cancelled and bool(rows) and rows[-1].state == "REQUEUED"


def _accounting(scene: Scene) -> dict[str, list[Row]]:
    ids = sorted({job_id.partition("_")[0] for job_id in scene.model.jobs})
    if not ids:
        return {}
    done = scene.world.cluster.run(*SACCT, "--jobs", ",".join(ids), env={"SLURM_TIME_FORMAT": "%s"}, check=False)
    rows: Sequence[Row] = parse_sacct(done.stdout) if done.returncode == 0 else []
    return by_job(row for row in rows if row.name.startswith(f"story{scene.seed}-"))
