"""The contenders of the experiment: headway-rl, its variants that leave one part out, contention-greedy, and controls."""

from __future__ import annotations

from simulator.reproducing.experiment import Contender, Kind, policy

_RULED = ("fifo", "fewest-gpus", "srtf", "las", "fifo-skip", "sjf", "srsf")
CONTROLS = (*_RULED, *(f"{name}:layout=anywhere" for name in _RULED))
"""Policies that ignore contention."""
QUICK_CONTROLS = ("fifo", "fifo-skip", "fewest-gpus", "srtf", "las:layout=anywhere")
GREEDY, HEADWAY = "contention-greedy", "headway-rl"
START = f"{HEADWAY}:values=start"
"""Values of the rule that training began with."""
VARIANTS = (START, f"{HEADWAY}:preempt=false", f"{HEADWAY}:effort=0", f"{HEADWAY}:law=nothing")
"""Each leaves one part out: learning, stops, the search over orders, and contention."""


def contenders(controls: tuple[str, ...]) -> tuple[Contender, ...]:
    """Return all contenders of a setting, with these controls."""
    return (
        policy(HEADWAY, Kind.OURS),
        *(policy(name, Kind.CONTROL) for name in (*VARIANTS, GREEDY, *controls)),
    )
