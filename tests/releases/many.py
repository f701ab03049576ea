"""All parts of one release: build its root, boot it once for the installation and once for the tests, and gather the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.releases import installation, suites
from tests.releases.container import Container, ContainerError, Mount
from tests.releases.installation import PartError
from tests.releases.release import INSTALLATION_PARTS, TEST_PARTS, Release, Result
from tests.releases.root import Root
from tests.releases.suites import RESULTS, Outcome

Says = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Play:
    """The parts to run, and where."""

    cache: Path
    parts: Sequence[str]
    parity: tuple[str, ...]
    mirror: Callable[[], str | None]
    checkout: Path
    """A copy of this checkout on this machine."""


def play_release(release: Release, play: Play, says: Says) -> list[Result]:
    """Return the result of each part. A root that cannot be built or booted fails all parts that need it."""
    root = Root(play.cache, release)
    try:
        root.build(play.mirror, play.checkout, says)
    except ContainerError as error:
        return [Result(release.slurm, part, "failed", str(error), 0.0) for part in play.parts]
    return [*_installation(root, play, says), *_tests(root, play, says)]


def _installation(root: Root, play: Play, says: Says) -> list[Result]:
    parts = [part for part in play.parts if part in INSTALLATION_PARTS]
    if not parts:
        return []
    try:
        with _boot(root, "site", play, [], says) as container:
            installation.prepare(container)
            return _in_turn(root, parts, container, play, says)
    except (ContainerError, PartError) as error:
        return [Result(root.release.slurm, part, "failed", str(error), 0.0) for part in parts]


def _in_turn(root: Root, parts: Sequence[str], container: Container, play: Play, says: Says) -> list[Result]:
    """Run parts that need the first: if it fails, the others are skipped."""
    results: list[Result] = []
    for part in parts:
        if results and results[0].verdict != "ok":
            results.append(Result(root.release.slurm, part, "skipped", f"needs {results[0].part}", 0.0))
            continue
        results.append(_timed(root, part, says, lambda part=part: _installed(container, part, play)))  # type: ignore[misc]
    return results


def _installed(container: Container, part: str, play: Play) -> Outcome:
    try:
        return Outcome("ok", installation.BY_NAME[part](container, play.checkout))
    except PartError as error:
        return Outcome("failed", str(error))


def _tests(root: Root, play: Play, says: Says) -> list[Result]:
    parts = [part for part in play.parts if part in TEST_PARTS]
    if not parts:
        return []
    mounts = suites.python_mounts()
    suites.open_folders(root.folder, mounts)
    results = root.state / "results"
    results.mkdir(exist_ok=True)
    mounts.append(Mount(results, RESULTS, writable=True))
    try:
        with _boot(root, "lab", play, mounts, says) as container:
            suites.prepare(container)
            return [
                _timed(
                    root,
                    part,
                    says,
                    lambda part=part: suites.play(container, part, root.release.slurm, play.parity, results),  # type: ignore[misc]
                )
                for part in parts
            ]
    except ContainerError as error:
        return [Result(root.release.slurm, part, "failed", str(error), 0.0) for part in parts]


def _boot(root: Root, kind: str, play: Play, mounts: Sequence[Mount], says: Says) -> Container:
    says(f"{root.release.slurm}  boot: {kind}")
    hostname = f"headway-{root.release.suite}"
    return Container(root.folder, hostname, mounts, play.checkout, root.state / f"{kind}.log")


def _timed(root: Root, part: str, says: Says, work: Callable[[], Outcome]) -> Result:
    says(f"{root.release.slurm}  {part}")
    begun_s = time.monotonic()
    outcome = work()
    result = Result(
        root.release.slurm, part, outcome.verdict, outcome.detail, time.monotonic() - begun_s, outcome.failures
    )
    says(f"{root.release.slurm}  {part}: {outcome.verdict}: {outcome.detail}")
    return result
