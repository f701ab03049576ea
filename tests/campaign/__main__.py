"""`python -m tests.campaign --runs N --seed S`: play stories, print the broken promises, and keep the shortened stories."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.campaign.many import Tally, run, silenced
from tests.campaign.play import Played, play
from tests.campaign.plot.generate import make_story
from tests.campaign.plot.story import Story, read_story
from tests.campaign.verdict.defects.catalogue import DEFECTS
from tests.campaign.verdict.model import Promise
from tests.campaign.verdict.power import STORIES, power, table
from tests.campaign.verdict.shrink import shrink


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns 1 when a promise was broken."""
    options = _parser().parse_args(arguments)
    options.processes = options.processes or (1 if options.real else os.cpu_count() or 1)
    if options.power:
        return _power(options)
    if options.real:
        return _real(options)
    if options.story is not None:
        return _one(read_story(options.story), options.defect)
    seeds = range(options.seed, options.seed + options.runs)
    broken = partial(_keep_whole, options.keep)
    tally = run(seeds, options.processes, options.defect, quiet=options.json, broken=broken)
    if options.json:
        print(json.dumps(_record(tally)))
    else:
        _print(tally)
    if tally.violations:
        _keep_short(tally, options.keep, options.defect)
    return 1 if tally.violations else 0


def _power(options: argparse.Namespace) -> int:
    """Look for every known defect, or for the one that is named. Returns 0: a defect that is not found is no failure."""
    names = [options.defect] if options.defect else list(DEFECTS)
    seeds = range(options.seed, options.seed + min(options.runs, STORIES))
    found = []
    for one in power(seeds, options.processes, names):
        found.append(one)
        if sys.stderr.isatty():
            print(f"\r{len(found)}/{len(names)} defects ", end="", file=sys.stderr)
    print(table(found))
    return 0


def _real(options: argparse.Namespace) -> int:
    from tests.campaign.real.many import main_real
    from tests.campaign.real.story import read_real_story

    story = read_real_story(options.story) if options.story is not None else None
    seeds = range(options.seed, options.seed + options.runs)
    return main_real(seeds, story, options.keep, options.processes, as_json=options.json)


def _one(story: Story, defect: str) -> int:
    with silenced(), DEFECTS[defect]() if defect else nullcontext():
        played = play(story)
    for violation in played.violations:
        print(violation)
    print(f"{len(story.steps)} steps, {played.jobs} jobs, {len(played.violations)} violations")
    return 1 if played.violations else 0


def _record(tally: Tally) -> dict[str, object]:
    return {
        "runs": tally.runs,
        "operations": tally.operations,
        "jobs": tally.jobs,
        "starts": tally.starts,
        "virtual_hours": round(tally.virtual_s / 3600, 1),
        "faults": dict(sorted(tally.faults.items())),
        "effects": dict(sorted(tally.effects.items())),
        "violations": [{"seed": seed, "text": text} for seed, text in tally.violations],
    }


def _print(tally: Tally) -> None:
    print(f"\n{tally.runs} stories, {tally.operations} operations, {tally.jobs} jobs, {tally.starts} starts, "
          f"{tally.virtual_s / 3600:.0f} hours of virtual time")  # fmt: skip
    for name, count in sorted(tally.faults.items()):
        print(f"  {name:28} {count:7}, {tally.effects[name]} of them took effect")
    print(f"{len(tally.violations)} violations")
    for seed, text in tally.violations[:50]:
        print(f"  seed {seed}: {text[:600]}")


def _keep_whole(folder: Path, seed: int, played: Played) -> None:
    """Write down a story that broke promises as soon as it has ended: a long run may be interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    make_story(seed).write(folder / f"story-{seed}.json", list(map(str, played.violations)))


def _keep_short(tally: Tally, folder: Path, defect: str) -> None:
    """Shorten each story that broke a promise, once for each promise, and write it down."""
    for seed, name in dict.fromkeys((seed, text[1 : text.index("]")]) for seed, text in tally.violations):
        path = folder / f"{name.lower()}-{seed}.json"
        with silenced(), DEFECTS[defect]() if defect else nullcontext():
            short = shrink(make_story(seed), Promise[name])
        short.write(path)
        print(
            f"{path}: {len(short.steps)} steps; play it by `python -m tests.campaign --story {path}`", file=sys.stderr
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="number of stories (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed of the first story; the next has the next number"
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="stories at a time (default: the cores; with --real one)"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        default=Path(tempfile.gettempdir()) / "headway-campaign",
        help="write there each story that breaks a promise, whole and shortened (default: %(default)s)",
    )
    parser.add_argument("--story", type=Path, metavar="FILE", help="play this story instead")
    parser.add_argument("--defect", choices=sorted(DEFECTS), default="", help="put a known defect back first")
    parser.add_argument(
        "--power",
        action="store_true",
        help=f"look for every known defect in up to {STORIES} stories, and print a table",
    )
    parser.add_argument(
        "--real", action="store_true", help="play on a real Slurm, on a cluster for each process (as root)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _order_sets() -> None:
    """Begin again with a fixed order of sets of texts, if none was chosen: with each order a story takes another course."""
    if "PYTHONHASHSEED" not in os.environ:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.campaign", *sys.argv[1:]])


if __name__ == "__main__":
    _order_sets()
    sys.exit(main())
