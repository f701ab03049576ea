"""The options of a run: one list, which `headway-sim run` and `compare` offer, `cli.plain` reads and a `Scenario` is made of.

It needs neither typer nor numpy, so that a small run does not spend its time on imports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from simulator.errors import SettingError

PLACEMENTS = {"consolidated": "consolidated", "any": "anywhere"}
"""Words of --placement, and of the policies' option `layout`."""


def _flag(flag: str, says: str, *, metavar: str | None = None, shown: str | None = None) -> dict[str, str | None]:
    """Describe an option: its flag, its line of help, and the default that the help shows instead of the value itself."""
    return {"flag": flag, "says": says, "metavar": metavar, "shown": shown}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run, as given on the command line. Raises SettingError for a number that is out of its range."""

    trace: Path = field(
        metadata=_flag("--trace", "CSV (also .gz, .zst) or parquet; headway-sim trace makes one from logs and papers.")
    )
    cluster: str = field(
        metadata=_flag("--cluster", "NxG: N nodes of G GPUs in one rack; or a TOML file.", metavar="NxG|FILE")
    )
    slowdown: tuple[str, ...] = field(
        default=("locality",),
        metadata=_flag(
            "--slowdown",
            "A model of why jobs run below their ideal speed. May be repeated; `none` is no slowdown.",
            metavar="NAME[:k=v,…]",
            shown="locality",
        ),
    )
    placement: str | None = field(
        default=None,
        metadata=_flag(
            "--placement",
            "consolidated, or any: also on the nodes with the most free GPUs where a job cannot be consolidated.",
            shown="the policy's own",
        ),
    )
    preempt_cost_s: float | None = field(
        default=None,
        metadata=_flag("--preempt-cost", "Seconds that every stop costs.", metavar="S", shown="by the job's model"),
    )
    round_s: float | None = field(
        default=None,
        metadata=_flag(
            "--round", "Seconds between rounds, for a policy that has rounds.", metavar="S", shown="the policy's own"
        ),
    )
    seed: int | None = field(
        default=None, metadata=_flag("--seed", "Seed of all random draws.", metavar="N", shown="0")
    )
    limit: int | None = field(
        default=None, metadata=_flag("--limit", "Read only the first N rows of the trace.", metavar="N", shown="all")
    )
    estimates: str = field(
        default="true",
        metadata=_flag("--estimates", "Estimates of durations that policies get: true, limit, noisy:SIGMA or history."),
    )
    drop_impossible: bool = field(
        default=False,
        metadata=_flag(
            "--drop-impossible",
            "Leave out jobs that can never fit on the cluster by some rule of placement, the same for all policies.",
        ),
    )
    preemptible_share: float = field(
        default=1.0, metadata=_flag("--preemptible-share", "Share of the jobs that may be stopped.", metavar="0..1")
    )
    checkpoint_interval_s: float | None = field(
        default=None,
        metadata=_flag(
            "--checkpoint-interval",
            "Seconds of work between checkpoints, from which jobs continue after failures.",
            metavar="S",
            shown="only at stops",
        ),
    )
    failures: str | None = field(
        default=None,
        metadata=_flag(
            "--failures",
            "A CSV time_s,node,change with down, drain and up; or mean seconds between failures of a node, and to its repair.",
            metavar="FILE|MTTF:MTTR",
            shown="none",
        ),
    )
    profiles: Path | None = field(
        default=None,
        metadata=_flag(
            "--profiles", "A file of profiles of trained models, for the slowdown models.", shown="the papers'"
        ),
    )

    models: str | None = field(
        default=None,
        metadata=_flag(
            "--models",
            "Draw models for jobs that name none from a mix of contention RL: normal, heavy, medium or low.",
            metavar="MIX",
            shown="the median of all models",
        ),
    )

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of the command line, as `RunOptions` declares it."""

    name: str
    """Name of the field."""
    flag: str
    says: str
    kind: type
    """Type of its value."""
    several: bool
    """May be given several times; the values make a tuple."""
    required: bool
    default: Any
    metavar: str | None
    shown: str | None


def run_flags() -> Iterator[Flag]:
    """Yield every option of `RunOptions`, in the order of the help."""
    hints = get_type_hints(RunOptions)
    for item in fields(RunOptions):
        hint = hints[item.name]
        several = get_origin(hint) is tuple
        kind = next(each for each in get_args(hint) or (hint,) if each is not NoneType)
        required = item.default is MISSING
        yield Flag(name=item.name, kind=kind, several=several, required=required, default=item.default, **item.metadata)


def _check(options: RunOptions) -> None:
    """Raise SettingError for a number that is out of its range."""
    cost, every, share = options.preempt_cost_s, options.checkpoint_interval_s, options.preemptible_share
    if options.placement is not None and options.placement not in PLACEMENTS:
        raise SettingError(f"--placement {options.placement!r}: give {' or '.join(PLACEMENTS)}")
    if cost is not None and not (math.isfinite(cost) and 0 <= cost < 1e9):
        raise SettingError(f"--preempt-cost {cost:g}: give seconds, 0 or more and less than 1e9")
    if options.round_s is not None and not (math.isfinite(options.round_s) and 0 <= options.round_s <= 4e9):
        raise SettingError(f"--round {options.round_s:g}: give seconds, at most 4e9, or 0 for no rounds")
    if every is not None and not (math.isfinite(every) and every >= 1e-9):
        raise SettingError(f"--checkpoint-interval {every:g}: give seconds, at least 1e-9")
    if not 0 <= share <= 1:
        raise SettingError(f"--preemptible-share {share:g}: give a share from 0 to 1")
    if options.seed is not None and options.seed < 0:
        raise SettingError(f"--seed {options.seed}: give a whole number, 0 or more")
