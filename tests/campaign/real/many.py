"""Plays many stories on one or more clusters, and adds up their results."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from compileall import compile_dir
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from slurm.prerequisites import missing
from tests.campaign.real.clusters import play_all, players
from tests.campaign.real.generate import make_real_story
from tests.campaign.real.play import RealPlayed
from tests.campaign.real.story import RealStory

_SOURCES = (
    "controller",
    "nodeagent",
    "policies",
    "protos",
    "simulator",
    "slurm",
    "headway_job/src",
    "headway_client/src",
)


@dataclass(slots=True)
class RealTally:
    """Totals over all stories played so far."""

    stories: int = 0
    operations: int = 0
    jobs: int = 0
    runs: int = 0
    saves: int = 0
    preemptions: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    continues: int = 0
    took_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    known: list[tuple[int, str]] = field(default_factory=list)
    violations: list[tuple[int, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Clusters that failed: a fault of the campaign, or of the machine."""

    def add(self, played: RealPlayed) -> None:
        """Count one story."""
        self.stories += 1
        self.operations += played.operations
        self.jobs += played.jobs
        self.runs += played.runs
        self.saves += played.saves
        self.preemptions += played.preemptions
        self.refused.update(played.refused)
        self.continues += played.continues
        self.took_s += played.took_s
        self.faults.update(played.faults)
        self.effects.update(played.effects)
        self.left_out.update(played.left_out)
        self.known += [(played.seed, text) for text in played.known]
        self.violations += [(played.seed, str(violation)) for violation in played.violations]


def run_real(stories: Sequence[RealStory], keep: Path | None, processes: int = 1, *, quiet: bool = False) -> RealTally:
    """Boot clusters and play the stories on them, one at a time on each; Ctrl-C ends it with the stories played so far."""
    tally = RealTally()
    _compile()
    with players(min(processes, len(stories)), partial(play_all, keep=keep)) as started:
        try:
            for story, played in started.play(stories):
                tally.add(played)
                if not quiet:
                    _report(story, played)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
        tally.failed += started.failed
    return tally


def main_real(seeds: range, story: RealStory | None, keep: Path | None, processes: int, *, as_json: bool) -> int:
    """Run the command. Return 1 when a promise was broken or a cluster failed, 2 when no cluster can be booted here."""
    if reasons := missing(accounting=True):
        print("; ".join(reasons), file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stories = [make_real_story(seed) for seed in seeds] if story is None else [story]
    tally = run_real(stories, keep, processes, quiet=as_json)
    if as_json:
        print(json.dumps(_record(tally)))
    else:
        _print(tally)
    return 1 if tally.violations or tally.failed else 0


def _compile() -> None:
    """Compile Headway: a controller that runs as SlurmUser may not write here, and would compile every module at each start."""
    root = Path(__file__).parents[3]
    for name in _SOURCES:
        compile_dir(root / name, quiet=2)


def _report(story: RealStory, played: RealPlayed) -> None:
    counts = {
        "operations": played.operations,
        "faults": played.faults.total(),
        "jobs": played.jobs,
        "runs": played.runs,
        "preemptions by hand": played.preemptions,
        "refused": played.refused.total(),
        "saves": played.saves,
        "continues": played.continues,
    }
    said = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{time.strftime('%H:%M:%S')} story {story.seed}: {said}, {played.took_s:.0f} s", flush=True)
    for violation in played.violations:
        print(f"  {str(violation)[:1500]}", flush=True)
    for text in played.known:
        print(f"  known: {text}", flush=True)


def _record(tally: RealTally) -> dict[str, object]:
    return {
        "runs": tally.stories,
        "operations": tally.operations,
        "jobs": tally.jobs,
        "starts": tally.runs,
        "saves": tally.saves,
        "continues": tally.continues,
        "preemptions_by_hand": tally.preemptions,
        "preemptions_refused": dict(tally.refused.most_common()),
        "seconds": round(tally.took_s),
        "faults": dict(sorted(tally.faults.items())),
        "effects": dict(sorted(tally.effects.items())),
        "faults_not_possible": dict(sorted(tally.left_out.items())),
        "known": [{"seed": seed, "text": text} for seed, text in tally.known],
        "violations": [{"seed": seed, "text": text} for seed, text in tally.violations],
        "failed": tally.failed,
    }


def _print(tally: RealTally) -> None:
    print(f"\n{tally.stories} stories on a real Slurm, {tally.operations} operations, {tally.jobs} jobs, {tally.runs} starts, "
          f"{tally.saves} saves, {tally.continues} continues from a saved step, {tally.took_s / 60:.1f} minutes")  # fmt: skip
    print(f"{tally.preemptions} preemptions by hand accepted, {tally.refused.total()} not accepted")
    for reason, count in tally.refused.most_common():
        print(f"  {count:5} {reason}")
    print(f"{tally.faults.total()} faults")
    for name, count in sorted(tally.faults.items()):
        print(f"  {name:28} {count:7}")
    for name, count in sorted(tally.effects.items()):
        print(f"  {name:40} {count:7}")
    for reason, count in sorted(tally.left_out.items()):
        print(f"  not possible here, {count} times: {reason}")
    print(f"{len(tally.known)} known limits, {len(tally.violations)} violations, {len(tally.failed)} clusters failed")
    for seed, text in tally.violations[:50]:
        print(f"  seed {seed}: {text[:600]}")
    for text in tally.failed:
        print(f"  {text}")
