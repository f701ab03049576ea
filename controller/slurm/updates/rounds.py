"""Changes of jobs in rounds: send the changes and read the jobs, until nothing is left to change.

controller.slurm.updates.changes decides what to change on one job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from controller.slurm.client import Failure, Failures
from controller.slurm.model.job import JobKey
from controller.slurm.updates.changes import Command, Step, gone
from controller.slurm.updates.found import Found
from controller.slurm.updates.memory import Memory
from controller.slurm.updates.pieces import Pieces

FRESH_S = 1.0
"""Age up to which a reading of a job suffices before a change, because the job is read after the change in any case."""
_ROUNDS = 4


class Rounds(ABC):
    """Carries out steps on jobs.

    Invariant: a reading within the last second suffices to begin a change, but only a new reading, or Slurm's own confirmation,
    shows that a job is done, and only a new reading that it cannot be done.
    """

    def __init__(self) -> None:
        self.before_change: Callable[[], None] = _nothing
        """Called right before every command that changes a job. It may raise SlurmUnavailableError: then no command is sent."""
        self._memory = Memory()
        self._pieces = Pieces()

    # ---- methods that a client implements

    @abstractmethod
    async def _find(self, keys: Sequence[JobKey], first: Sequence[Command] = ()) -> dict[JobKey, Found]:
        """Run commands, then read these jobs. Jobs that are gone are left out."""

    @abstractmethod
    async def carry_out(self, commands: Sequence[Command]) -> bool:
        """Run commands. Returns True when Slurm has confirmed every one; otherwise their effect must be read."""

    @abstractmethod
    async def complaint(self, command: Command) -> str:
        """Run one command alone. Returns Slurm's message about it, if any."""

    # ---- the loop

    async def _change(
        self, keys: Sequence[JobKey], step: Callable[[Found], Step], *, trusting: bool = False
    ) -> Failures:
        """Change the jobs, in pieces, until the step finds nothing to change.

        Trusting: Slurm's own confirmation suffices, because the change cannot be carried out in part.
        """
        return await self._pieces.run(keys, lambda piece: self._change_piece(piece, step, trusting=trusting))

    async def _change_piece(self, keys: Sequence[JobKey], step: Callable[[Found], Step], *, trusting: bool) -> Failures:
        """Let the step find what to change on each job, change it, and read the jobs, until nothing is left to change."""
        failures: dict[JobKey, Failure] = {}
        sent: dict[JobKey, Command] = {}
        commands = await self._first_commands(keys, step, failures)
        if trusting and commands:
            self.before_change()
            if await self.carry_out(list(commands.values())):
                for key in commands:
                    self._memory.drop(key.job_id)
                return failures
        for _ in range(_ROUNDS):
            stuck = [key for key, command in commands.items() if sent.get(key) == command]
            for key in stuck:
                failures |= await self._last_try(key, commands.pop(key), step)
            if not commands:
                return failures
            sent |= commands
            left = list(commands)
            self.before_change()
            after = await self._find(left, list(commands.values()))
            commands = _steps(left, _updated(after), step, failures)
        return failures | {key: Failure("another program keeps changing the job") for key in commands}

    async def _first_commands(
        self, keys: Sequence[JobKey], step: Callable[[Found], Step], failures: dict[JobKey, Failure]
    ) -> dict[JobKey, Command]:
        known = {key: found for key in keys if (found := self._memory.get(key, FRESH_S)) is not None}
        commands = {key: answer for key, found in known.items() if isinstance(answer := step(found), Command)}
        unsure = [key for key in dict.fromkeys(keys) if key not in commands]
        return commands | _steps(unsure, await self._find(unsure), step, failures)

    async def _last_try(self, key: JobKey, command: Command, step: Callable[[Found], Step]) -> dict[JobKey, Failure]:
        """Run a command that had no effect once more, alone, for its effect or for Slurm's message."""
        self.before_change()
        complaint = await self.complaint(command)
        failures: dict[JobKey, Failure] = {}
        if _steps([key], _updated(await self._find([key])), step, failures):
            failures[key] = Failure(complaint or "Slurm accepts the change and does not carry it out")
        return failures


def _nothing() -> None:
    """Do nothing."""


def _steps(
    keys: Iterable[JobKey],
    found: Mapping[JobKey, Found],
    step: Callable[[Found], Step],
    failures: dict[JobKey, Failure],
) -> dict[JobKey, Command]:
    """Return commands for the jobs that need one; failures are added to those given."""
    commands = {}
    for key in keys:
        match step(found[key]) if key in found else gone(key):
            case Failure() as failure:
                failures[key] = failure
            case Command() as command:
                commands[key] = command
    return commands


def _updated(found: Mapping[JobKey, Found]) -> dict[JobKey, Found]:
    return {key: replace(one, updated=True) for key, one in found.items()}
