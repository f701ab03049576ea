"""Contenders of MARL's experiment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from policies.learned.marl.system import NAME, SINGLE, agent, is_shipped
from simulator.papers.marl.reproduction.settings import (
    BUSY,
    COUNTS,
    CROWDED,
    DAILY,
    LARGE_SERVERS,
    MIXED,
    SCHEDULERS,
    TESTBED,
    TRAINED,
    TWO_SIZES,
    UNIFORM,
    run_agent,
    run_bound,
    run_rule,
)
from simulator.papers.marl.rules.named import RULES
from simulator.reproducing.experiment import Contender, Kind, Run, Setting
from simulator.runs.progress import OnProgress

OURS = NAME
"""The agent that comes with Headway."""
ALONE, PAPERS, OF_MIXED = "marl-alone", "marl-paper", "marl-mixed"
TRAININGS: dict[str, tuple[str, ...]] = {
    ALONE: ("preset=alone", "jobs=15"),
    PAPERS: ("preset=paper",),
    SINGLE: ("single=true",),
    OF_MIXED: ("architecture=mixed", "jobs=15/30/45"),
}
"""Other trainings by name, and what differs from the default recipe, as for `--set`. Their runs are stored. They act in the data
center of their training, and `_ACTS_IN` has others. The weights of `marl-single` come with Headway; it acts in those of
`_OF_SINGLE`."""
_ACTS_IN = {OF_MIXED: {each.name for each in (DAILY, BUSY, LARGE_SERVERS, TWO_SIZES, MIXED, CROWDED)}}
_OF_SINGLE = {each.name for each in (DAILY, UNIFORM, BUSY, TRAINED, CROWDED)}
"""The arrivals of figure 10, more jobs, and the data center of its training."""
_WITH_WAITS = {each.name for each in (BUSY, CROWDED)}
"""Settings in which partitions fill, so that forwarding matters."""
TETRIS, LB, LIF, DEEPSYS, ATTE = "tetris", "lb", "lif", "deepsys", "atte"
KUBERNETES = "kubernetes"
"""The default scheduler, which is in figure 11 alone."""
BASELINES = (TETRIS, LB, LIF, DEEPSYS, ATTE)
INTERFERENCE_GREEDY, CONTENTION_GREEDY = "interference-greedy", "contention-greedy"
LOOKAHEAD_GREEDY, RANDOM = "lookahead-greedy", "random"
CONTROLS = (INTERFERENCE_GREEDY, CONTENTION_GREEDY, LOOKAHEAD_GREEDY, RANDOM)
ONE, ALWAYS, NEVER = "marl, one scheduler", "marl, always forwarding", "marl, never forwarding"
GREEDY_ONE = "contention-greedy, one scheduler"
_VARIANTS: dict[str, dict[str, Any]] = {
    ONE: {"single": True},
    ALWAYS: {"forwarding": "always"},
    NEVER: {"forwarding": "never"},
}
BOUND = "lower bound"


def contenders(setting: Setting, trained: Path | None = None) -> tuple[Contender, ...]:
    """Return all contenders of a setting; with a folder of trainings, those of `TRAININGS` too that are there."""
    if setting.name == SCHEDULERS.name:
        return (*_by_number(), Contender(BOUND, Kind.BOUND, _bound))
    rules = [_rule(name, Kind.BASELINE) for name in BASELINES] + [_rule(name, Kind.CONTROL) for name in CONTROLS]
    if setting.name == TESTBED.name:
        rules.append(_rule(KUBERNETES, Kind.BASELINE))
    variants = [
        Contender(name, Kind.OURS, _acting("", NAME, options))
        for name, options in _VARIANTS.items()
        if is_shipped() and (setting.name in _WITH_WAITS or (setting.name == DAILY.name and name == ONE))
    ]
    if variants:
        rules.append(_rule(CONTENTION_GREEDY, Kind.CONTROL, GREEDY_ONE, single=True))
    ours = [Contender(OURS, Kind.OURS, _acting("", NAME, {}))] if is_shipped() else []
    if is_shipped(SINGLE) and setting.name in _OF_SINGLE:
        ours.append(Contender(SINGLE, Kind.OURS, _acting("", SINGLE, {"single": True})))
    return (*ours, *variants, *_others(setting, trained), *rules, Contender(BOUND, Kind.BOUND, _bound))


def with_schedulers(name: str, count: int) -> str:
    """Return the name of a contender that acts with so many schedulers."""
    return f"{name}, {count} scheduler{'s' if count > 1 else ''}"


def _by_number() -> Iterator[Contender]:
    """Yield the agent, the baselines and a control with each number of schedulers."""
    for count in COUNTS if is_shipped() else ():
        yield Contender(with_schedulers(OURS, count), Kind.OURS, _acting("", NAME, {"schedulers": count}))
    kinds = {**dict.fromkeys(BASELINES, Kind.BASELINE), CONTENTION_GREEDY: Kind.CONTROL}
    for name, kind in kinds.items():
        for count in COUNTS:
            yield _rule(name, kind, with_schedulers(name, count), schedulers=count)


def _others(setting: Setting, trained: Path | None) -> list[Contender]:
    if trained is None:
        return []
    acting = [name for name in TRAININGS if setting.name in {TRAINED.name, *_ACTS_IN.get(name, ())}]
    there = [name for name in acting if not is_shipped(name) and (trained / name / "best").is_dir()]
    return [Contender(name, Kind.OURS, _acting(str(trained / name), NAME, {})) for name in there]


def _rule(name: str, kind: Kind, title: str = "", **options: Any) -> Contender:
    def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
        return run_rule(RULES[name](), where, seed, **options)

    return Contender(title or name, kind, run)


def _acting(folder: str, shipped: str, options: dict[str, Any]) -> Any:
    def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
        return run_agent(agent(folder, shipped), where, seed, **options)

    return run


def _bound(where: Setting, seed: int, _report: OnProgress | None) -> Run:
    return run_bound(where, seed)
