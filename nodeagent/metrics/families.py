"""Metric families, and their text in Prometheus's exposition format 0.0.4. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(slots=True)
class Family:
    """One metric with all its series. Invariant: a value that is not known has no series."""

    name: str
    """With the base unit of Prometheus; a counter ends in `_total`."""
    kind: Literal["gauge", "counter"]
    text: str
    series: list[tuple[Mapping[str, str], float]] = field(default_factory=list)
    """Bound: GPUs, interfaces and counters of the node; lives for one writing of the file."""

    def add(self, labels: Mapping[str, str], value: float | None) -> None:
        """Add a series, unless the value is not known."""
        if value is not None:
            self.series.append((labels, float(value)))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the format; none without a series."""
        if not self.series:
            return
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.series:
            named = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
            yield f"{self.name}{{{named}}} {value:.17g}"


def exposition(families: Iterable[Family]) -> str:
    """Return the text of the families."""
    return "".join(f"{line}\n" for family in families for line in family.lines())
