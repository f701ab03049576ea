"""The cases, by subject."""

from __future__ import annotations

from collections.abc import Mapping

from tests.parity.case import Case
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
    times,
)

MODULES = (
    gpus,
    nodes,
    memory,
    features,
    dependencies,
    times,
    partitions,
    order,
    limits,
    preemption,
    operators,
    commands,
)
SUBJECTS: Mapping[str, tuple[Case, ...]] = {module.SUBJECT: module.CASES for module in MODULES}
"""Subject → its cases."""
ALL: tuple[Case, ...] = tuple(case for cases in SUBJECTS.values() for case in cases)
