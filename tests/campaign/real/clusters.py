"""Plays stories on several clusters at a time; each cluster belongs to a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from tests.campaign.real.play import RealPlayed, play_real
from tests.campaign.real.story import RealStory
from tests.campaign.real.world import World, real_world

_LOGS_KEPT = 300_000
"""Characters of each log that are kept beside a story."""


@dataclass(slots=True)
class _Player:
    """A process with its cluster. It asks for a story when its cluster is up, and after each story."""

    process: BaseProcess
    pipe: Connection
    story: RealStory | None = None
    """The story that it plays."""


@dataclass(slots=True)
class Players:
    """Invariant: each story is played by one cluster, and no process is left after `players`."""

    players: list[_Player]
    failed: list[str] = field(default_factory=list)
    """Clusters that failed, with the story that was being played."""

    def play(self, stories: Sequence[RealStory]) -> Iterator[tuple[RealStory, RealPlayed]]:
        """Yield each story with its result, as they end. Stories are left over if every cluster has failed."""
        left = iter(stories)
        open_players = list(self.players)
        while open_players:
            ready = wait([player.pipe for player in open_players])
            for player in [player for player in open_players if player.pipe in ready]:
                try:
                    played = player.pipe.recv()
                except EOFError:
                    open_players.remove(player)
                    self._note_end(player)
                    continue
                story, player.story = player.story, next(left, None)
                with suppress(BrokenPipeError):  # the next recv finds the end
                    player.pipe.send(player.story)
                if story is not None:
                    yield story, played

    def _note_end(self, player: _Player) -> None:
        player.process.join()
        if player.process.exitcode:
            what = f"story {player.story.seed}" if player.story is not None else "no story"
            self.failed.append(f"a cluster ended with status {player.process.exitcode} in {what}")

    def end(self) -> None:
        """Interrupt the stories that are being played, and wait until every cluster has been removed."""
        for player in self.players:
            if player.process.is_alive() and player.process.pid is not None:
                os.kill(player.process.pid, signal.SIGINT)
        for player in self.players:
            player.pipe.close()
            player.process.join()


@contextmanager
def players(number: int, work: Callable[[Connection], None]) -> Iterator[Players]:
    """Start the processes; `work` of each boots a cluster and plays the stories that come. End them all at the end."""
    context = get_context("spawn")
    started = Players([])
    try:
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs,))
            process.start()
            theirs.close()
            started.players.append(_Player(process, ours))
        yield started
    finally:
        started.end()


def play_all(pipe: Connection, keep: Path | None) -> None:
    """Boot a cluster and play the stories that come through the pipe, until none is left, the parent ends, or a signal comes."""
    signal.signal(signal.SIGINT, _interrupt_once)
    signal.signal(signal.SIGTERM, _interrupt_once)
    with suppress(KeyboardInterrupt), real_world(f"stories-{os.getpid()}") as world:
        story = _next_story(pipe, None)
        while story is not None:
            played = play_real(world, story)
            if keep is not None:
                _keep_story(world, story, played, keep)
            shutil.rmtree(played.folder, ignore_errors=True)
            story = _next_story(pipe, played)
        _ignore_signals()


def _next_story(pipe: Connection, played: RealPlayed | None) -> RealStory | None:
    """Report a result and receive the next story; None if there is none, or if the parent has ended."""
    with suppress(EOFError, OSError):
        pipe.send(played)
        story: RealStory | None = pipe.recv()
        return story
    return None


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; signals that follow do not disturb the removal of the cluster."""
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _keep_story(world: World, story: RealStory, played: RealPlayed, folder: Path) -> None:
    """Keep what was done; of a story that broke a promise also the story, the jobs' logs and the logs of all processes."""
    kept = folder / f"story-{story.seed}"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "notes.txt").write_text("\n".join(played.notes) + "\n")
    if not played.violations:
        return
    shutil.copytree(played.folder, kept / "jobs", dirs_exist_ok=True)
    story.write(kept / "story.json")
    texts = [str(violation) for violation in played.violations]
    (kept / "violations.txt").write_text("\n\n".join(texts) + "\n")
    logs = [*world.headway.folder.glob("*.log"), *world.cluster.files.log.glob("*.log")]
    logs += world.headway.folder.glob("agents/*/*.log")
    for path in logs:
        name = f"{path.parent.name}-{path.name}" if path.name in {"agent.log", "liar.log"} else path.name
        (kept / name).write_text(path.read_text(errors="replace")[-_LOGS_KEPT:])
