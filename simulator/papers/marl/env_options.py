"""Options of the environment for gymnasium: those of the world, of one scheduler's view, and those that a training gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from simulator.cluster.cluster import Cluster
from simulator.errors import SettingError
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.rules.named import RULES
from simulator.papers.marl.state.data_center import DataCenter
from simulator.slowdown.registry import none_of


@dataclass(frozen=True, kw_only=True)
class MarlEnvOptions(MarlOptions):
    """The world's options, and those of one scheduler's view."""

    agent: int | None = None
    """Scheduler whose view it is; None: all of them, in turn."""
    others: str = "lif"
    """Rule of the other schedulers, and of `advice`: tetris, lb, lif, deepsys, atte, random, kubernetes, interference-greedy,
    contention-greedy or lookahead-greedy."""
    cluster: Cluster | None = None
    """The cluster that a training gives: the same data center as `network`, `k` and the others describe; None: not checked."""
    slowdown: Sequence[str] = ()
    """Slowdown models that a training gives: empty or `none`, because the environment has laws of its own."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        super().__post_init__()
        if self.others not in RULES:
            raise SettingError(f"others is {self.others!r}; give one of {', '.join(RULES)}")
        if not none_of(self.slowdown):
            raise SettingError(
                f"slowdown is {', '.join(map(str, self.slowdown))}, and jobs here slow each other down by laws of their own; "
                "leave --slowdown out"
            )

    def check_cluster(self, center: DataCenter) -> None:
        """Raise SettingError if the given cluster is not this data center."""
        if self.cluster is None:
            return
        given, made = self.cluster.topology, center.topology
        if (given.gpus, given.sockets, given.network) != (made.gpus, made.sockets, made.network):
            raise SettingError(
                f"the cluster is not the data center of network={self.network}, k={self.k}; leave --cluster out, and choose the "
                "data center with these options"
            )


def options_of(kind: type[Any], options: Mapping[str, Any]) -> Any:
    """Make options from keywords. Raises SettingError, which lists the names, for unknown ones."""
    known = [each.name for each in fields(kind)]
    for name in options:
        if name not in known:
            raise SettingError(f"there is no option {name!r}; the options are {', '.join(known)}")
    return kind(**options)
