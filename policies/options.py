"""Checks of the options that policies are made with."""

from __future__ import annotations

from policies.documents import is_number, is_whole
from policies.rule import Layout, Order

_LARGEST = (1 << 63) - 1


def number(name: str, value: object, *, unit: str, positive: bool = False) -> float:
    """Return the option as a finite number, 0 or more (with `positive`: more than 0). Raises ValueError that names it."""
    wanted = f"give a number of {unit}, {'more than 0' if positive else '0 or more'}"
    if not is_number(value, low=0.0) or (positive and value == 0):
        raise ValueError(f"{name} is {value!r}; {wanted}")
    return float(value)


def layout_named(value: object) -> Layout:
    """Return the option `layout`: consolidated or anywhere. Raises ValueError that lists both."""
    known = {name.name.lower(): name for name in Layout}
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"layout is {value!r}; give {' or '.join(known)}")
    return known[value]


def order_named(value: object) -> Order:
    """Return the option `order`: submission or slurm. Raises ValueError that lists both."""
    known = {"submission": Order.ARRIVAL, "slurm": Order.SLURM}
    return known[choice("order", value, tuple(known))]


def tier_first(value: object) -> bool:
    """Return the option `order` of a policy that has an order of its own: own (False) or tier (True). Raises ValueError.

    Slurm's whole order is no choice: with a priority for each job nothing would be left of the policy's own, and running jobs,
    which have no priority, would all be stopped for waiting ones.
    """
    return choice("order", value, ("own", "tier")) == "tier"


def whole(name: str, value: object, *, least: int | None = None, most: int | None = None) -> int:
    """Return the option as a whole number of at most 63 bits, from `least` to `most`. Raises ValueError that names it."""
    limits = [f"{least} or more"] if least is not None else []
    limits += [f"{most} at most"] if most is not None else []
    lowest, highest = -_LARGEST if least is None else least, _LARGEST if most is None else most
    if not is_whole(value, lowest, highest):
        raise ValueError(f"{name} is {value!r}; give {', '.join(['a whole number', *limits])}")
    return value


def choice(name: str, value: object, known: tuple[str, ...]) -> str:
    """Return the option if it is one of the known words. Raises ValueError that names it."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}; give {' or '.join(known)}")
    return value


def switch(name: str, value: object) -> bool:
    """Return the option as true or false. Raises ValueError that names it."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; give true or false")  # noqa: TRY004 - one kind of error for every bad option
    return value
