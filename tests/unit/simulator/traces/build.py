"""Small files and traces for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st

from simulator.traces.trace import NS_PER_S, Trace

T = TypeVar("T")
HEADER = "job_id,submit_time_s,num_gpus,duration_s"


def csv_file(folder: Path, *rows: str, header: str = HEADER, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


TIMES = st.integers(0, 10**9 * NS_PER_S) | st.integers(0, 10**6).map(lambda seconds: seconds * NS_PER_S)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters='\n",'), max_size=8)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace: every column in use, texts that need quotes, times that need nine decimals."""
    rows = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[T]) -> list[T]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    gpus = column(st.integers(1, 64))
    return Trace.of(
        "any",
        [f"{text}#{row}" for row, text in enumerate(column(TEXTS))],
        column(TIMES),
        gpus,
        [time + 1 for time in column(TIMES)],
        limit_ns=column(TIMES.map(lambda time: time or -1)),
        preemptible=column(st.booleans()),
        min_gpus=[max(1, size - less) for size, less in zip(gpus, column(st.integers(0, 5)), strict=True)],
        max_gpus=[size + more for size, more in zip(gpus, column(st.integers(0, 5)), strict=True)],
        batch_size=column(st.just(-1) | st.integers(1, 1 << 40)),
        user=column(TEXTS),
        vc=column(TEXTS),
        status=column(TEXTS),
        model=column(TEXTS),
        extra={"source": column(TEXTS)},
    )
