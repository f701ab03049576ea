"""The cases, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    limits,
    preemption,
    operators,
    commands,
)
_WORDS = {name: words for words, names in KNOWN.items() for name in names}
SUBJECTS: Mapping[str, tuple[Case, ...]] = {
    module.SUBJECT: tuple(replace(case, known=_WORDS.get(case.name, "")) for case in module.CASES) for module in MODULES
}
"""Subject → its cases."""
ALL: tuple[Case, ...] = tuple(case for cases in SUBJECTS.values() for case in cases)
