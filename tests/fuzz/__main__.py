"""`python -m tests.fuzz --runs N --seed S`: run the targets, print the outcomes, and keep the inputs that show a fault."""

from __future__ import annotations

import argparse
import json
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "headway_job" / "src"))

from tests.fuzz.engine import Fault, Tally, be_quiet, shares, shrink
from tests.fuzz.many import run_all
from tests.fuzz.servers import SERVERS, run_server
from tests.fuzz.targets import TARGETS

KEPT = Path(__file__).parent / "kept"


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 1 if a fault was found."""
    options = _parser().parse_args(arguments)
    if options.list:
        _list()
        return 0
    be_quiet()
    names = options.target or [*TARGETS, *SERVERS]
    targets = [TARGETS[name] for name in names if name in TARGETS]
    tallies = run_all(
        targets,
        shares(targets, options.runs) if targets else {},
        options.seed,
        options.processes,
        lambda tally: None if options.json else _print(tally),
    )
    for name in (name for name in names if name in SERVERS):
        tallies.append(run_server(name, options.frames, options.seed))
        if not options.json:
            _print(tallies[-1])
    faults = [fault for tally in tallies for fault in tally.faults.values()]
    if options.json:
        print(json.dumps([_record(tally) for tally in tallies]))
    else:
        inputs, cpu_s = sum(tally.runs for tally in tallies), sum(tally.cpu_s for tally in tallies)
        print(f"{inputs} inputs, {cpu_s:.0f} s of CPU time, {len(faults)} faults")
    for fault in faults if options.keep else ():
        _keep(fault, options.keep)
    return 1 if faults else 0


def _list() -> None:
    for target in TARGETS.values():
        print(f"{target.name:22} {target.what}")
    for name, server in SERVERS.items():
        print(f"{name:22} {server.__doc__}")


def _print(tally: Tally) -> None:
    if tally.skipped:
        print(f"{tally.target:22} skipped: {tally.skipped}")
        return
    outcomes = ", ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
    print(
        f"{tally.target:22} {tally.runs:8} inputs {tally.cpu_s:7.1f} s {tally.grown_bytes >> 20:5} MiB  {outcomes}",
        flush=True,
    )
    for fault in tally.faults.values():
        print(f"    {fault.kind}: {fault.detail} (input {fault.number}, {len(fault.data)} bytes)", flush=True)


def _record(tally: Tally) -> dict[str, object]:
    return {
        "target": tally.target,
        "runs": tally.runs,
        "cpu_s": round(tally.cpu_s, 2),
        "grown_mib": tally.grown_bytes >> 20,
        "outcomes": dict(tally.outcomes.most_common()),
        "faults": [
            {"kind": fault.kind, "detail": fault.detail, "number": fault.number} for fault in tally.faults.values()
        ],
        "skipped": tally.skipped,
    }


def _keep(fault: Fault, folder: Path) -> None:
    """Write the shortened input into the folder that tests read."""
    if fault.number < 0 or fault.target not in TARGETS:
        return
    data = fault.data if fault.detail.startswith("process") else shrink(TARGETS[fault.target], fault).data
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{fault.target}.{sha256(data).hexdigest()[:10]}"
    path.write_bytes(data)
    print(f"{path}: {len(data)} bytes: {fault.kind}: {fault.detail}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--runs",
        type=int,
        default=50_000,
        metavar="N",
        help="number of inputs, shared among the targets by their cost (default: %(default)s)",
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=2000,
        metavar="N",
        help="number of mutated frames for each server (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of all inputs (default: %(default)s)")
    parser.add_argument(
        "--target",
        action="append",
        choices=[*TARGETS, *SERVERS],
        metavar="NAME",
        help="run only this target; may be given several times",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="number of targets that run at the same time (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        nargs="?",
        const=KEPT,
        metavar="FOLDER",
        help="write the inputs that show a fault into this folder (default: tests/fuzz/kept)",
    )
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    return parser


if __name__ == "__main__":
    sys.exit(main())
