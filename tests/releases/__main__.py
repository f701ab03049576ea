"""`python -m tests.releases` (as root): Debian with Slurm 22.05, 24.11 and 26.05 in roots of their own, and Headway's tests inside.

The roots are built once, in a folder of caches; what runs inside changes nothing of them. The packages come from the mirrors of
this machine's apt and pip. Exit status: 1 when something failed, 2 when nothing can be run here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from slurm.apt import install
from slurm.signals import end_on_signals
from tests.releases.checkout import copy_checkout
from tests.releases.many import Play, play_release
from tests.releases.mirror import debian_mirror
from tests.releases.release import PARTS, RELEASES, Result, with_needed
from tests.releases.report import as_json, status, table
from tests.releases.root import cache_folder
from tests.releases.suites import PARITY

_NEEDED = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "nsenter": "util-linux"}
"""Program → its package in Debian and Ubuntu."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if problem := _prepared():
        print(problem, file=sys.stderr)
        return 2
    end_on_signals()  # the containers go with the command
    begun_s = time.monotonic()

    def says(text: str) -> None:
        print(f"{time.monotonic() - begun_s:5.0f} s  {text}", file=sys.stderr, flush=True)

    cache = cache_folder()
    checkout = cache / f"checkout.{os.getpid()}"
    play = Play(
        cache=cache,
        parts=with_needed(options.only or PARTS),
        parity=tuple(options.parity or PARITY),
        mirror=lambda: options.mirror or debian_mirror(),
        checkout=checkout,
    )
    try:
        copy_checkout(checkout)
        results = [
            result
            for release in RELEASES
            if not options.release or release.slurm in options.release
            for result in play_release(release, play, says)
        ]
    finally:
        shutil.rmtree(checkout, ignore_errors=True)
    _print(results, as_json_text=options.json)
    return status(results)


def _prepared() -> str:
    """Install what is missing, as root; return the reason why nothing can be run here, empty if it can."""
    if os.geteuid() != 0:
        return "the roots need root, because they are machines of their own; run it with sudo"
    if missing := [package for program, package in _NEEDED.items() if shutil.which(program) is None]:
        install(missing)
    missing = [package for program, package in _NEEDED.items() if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _print(results: Sequence[Result], *, as_json_text: bool) -> None:
    if as_json_text:
        print(json.dumps(as_json(results), indent=1))
        return
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table(results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    releases = [release.slurm for release in RELEASES]
    parser.add_argument(
        "--release", action="append", choices=releases, help="run only on this release; can be repeated"
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="run only this part, and those it needs")
    parser.add_argument(
        "--parity",
        action="append",
        metavar="GLOB",
        help=f"cases or subjects of the parity suite (default: {', '.join(PARITY)}; '*' for all)",
    )
    parser.add_argument("--mirror", metavar="URL", help="mirror of Debian (default: the one that apt uses here)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
