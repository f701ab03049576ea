"""One case: what users and operators type, in order, on three nodes of eight GPUs each.

Words may name nodes of the case (`{n1}`, `{n2}`, `{n3}`), its partitions (`{gpu}` and the other names of `world.PARTITIONS`), and
ids of jobs by their labels (`{job}`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

USER = "daemon"
"""A plain user. It exists on every Debian system, as the others do."""
OTHER = "bin"
"""A second plain user."""
ROOT = "root"
OVERRIDES = ("-p", "--partition")
"""Options that take the place of the partition that a case has by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The submission of one job."""

    options: str = ""
    """Options on the command line."""
    label: str = "job"
    script: str = "sleep 1"
    """Batch script after `sbatch`; command after `srun` and `salloc`."""
    directives: str = ""
    """Options in an #SBATCH line of the script."""
    user: str = USER
    program: str = "sbatch"


@dataclass(frozen=True, slots=True)
class Do:
    """A command, such as `scontrol update`. Its status and words are compared."""

    words: str
    user: str = USER
    label: str = ""
    """Name in the comparison; empty for a command that is not compared."""


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until a job has one of these states. The case continues if it never has."""

    label: str
    states: str = "RUNNING"
    within_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


Step = Job | Do | Until | Pause


@dataclass(frozen=True, slots=True)
class Limit:
    """A documented limit. Only the named aspects of its cases may be worse: any other difference there is a regression."""

    words: str = ""
    """Words of a line of docs/operations.md; empty for none."""
    aspects: tuple[str, ...] = ()
    """Aspects in which Headway is worse, by the names that `tests.parity.judge.rules` gives them."""
    cases: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    """Beginnings of the releases of Slurm with this limit; empty for all."""

    def covers(self, aspect: str, release: str) -> bool:
        """Return whether the documents say that this aspect is worse on that release."""
        return aspect in self.aspects and (not self.releases or release.startswith(self.releases))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Steps to play, and options of the comparison beside state, GPUs, environment, exit status and accounting."""

    name: str
    steps: tuple[Step, ...]
    undo: tuple[str, ...] = ()
    """Commands of root after the case, for example to remove a reservation."""
    within_s: float = 20.0
    """Longest time after the last step until all jobs have ended."""
    runs_on_s: float = 60.0
    """Longest time after that in which jobs that run may end."""
    where: bool = False
    """True if the request determines the nodes, so that they must be the same."""
    accounting: bool = False
    """True if the case needs slurmdbd."""
    world: str = "main"
    """Name of the cluster in `world.WORLDS` on which it is played."""
    known: Limit = field(default_factory=Limit)
    """The documented limit by which Headway is worse here; one without aspects if it must not be."""
    not_worse: str = ""
    """Reason why a difference in some aspects is not worse; empty if it is."""
    aspects: tuple[str, ...] = ("start", "order", "state", "restarts", "accounting")
    """These aspects."""

    @property
    def waits(self) -> bool:
        """True if a job may wait for another one or for a command, so that a start some seconds later may be chance."""
        return len(self.steps) > 1 or self.within_s > 20.0

    def jobs(self) -> tuple[Job, ...]:
        """Return the submissions, in order."""
        return tuple(step for step in self.steps if isinstance(step, Job))


def one(name: str, options: str, script: str = "sleep 1", **fields: object) -> Case:
    """Return a case of one batch job."""
    return Case(name=name, steps=(Job(options=options, script=script),), **fields)  # type: ignore[arg-type]


STEP = "srun bash ../step.sh"
"""Command of a script: a step whose tasks write down their environments."""


def stepped(name: str, options: str, srun: str = "", **fields: object) -> Case:
    """Return a case of one batch job with a step, which has these options."""
    return one(name, options, f"srun {srun} bash ../step.sh", **fields)


def story(name: str, *steps: Step, **fields: object) -> Case:
    """Return a case of several steps."""
    return Case(name=name, steps=steps, **fields)  # type: ignore[arg-type]
