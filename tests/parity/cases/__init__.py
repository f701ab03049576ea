"""The cases, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.parity.case import Case, Limit
from tests.parity.cases import (
    commands,
    dependencies,
    features,
    gpus,
    limits,
    memory,
    nodes,
    operators,
    order,
    partitions,
    preemption,
    shares,
    switches,
    times,
)
from tests.parity.cases.known import KNOWN

MODULES = (
    gpus,
    nodes,
    memory,
    features,
    dependencies,
    times,
    partitions,
    order,
    shares,
    limits,
    preemption,
    switches,
    operators,
    commands,
)
_LIMITS = {name: limit for limit in KNOWN for name in limit.cases}
SUBJECTS: Mapping[str, tuple[Case, ...]] = {
    module.SUBJECT: tuple(replace(case, known=_LIMITS.get(case.name, Limit())) for case in module.CASES)
    for module in MODULES
}
"""Subject → its cases."""
ALL: tuple[Case, ...] = tuple(case for cases in SUBJECTS.values() for case in cases)
