"""Rows to fit from, read from files."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.errors import SlowdownError
from simulator.slowdown.fitting.rows import read_rows


@dataclass(frozen=True)
class Measured:
    model: str
    gpus: int
    speed: float


def test_rows_from_csv_gz_and_parquet(tmp_path: Path) -> None:
    text = "name,gpus,more,speed\na,1,x,2.5\nb,2,y,3\n"
    (tmp_path / "r.csv").write_text(text)
    with gzip.open(tmp_path / "r.csv.gz", "wt") as file:
        file.write(text)
    pyarrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({"name": ["a", "b"], "gpus": [1, 2], "speed": [2.5, 3.0]}), tmp_path / "r.parquet"
    )
    for name in ("r.csv", "r.csv.gz", "r.parquet"):
        rows = read_rows(tmp_path / name, Measured, {"model": "name"})
        assert rows == [Measured("a", 1, 2.5), Measured("b", 2, 3.0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model,gpus\na,1\n", "no column speed"),
        ("model,gpus,speed\na,1.5,2\n", "line 2, column gpus: '1.5'"),
        ("model,gpus,speed\na,1,2\nb,2,nan\n", "line 3, column speed: 'nan'"),
        ("model,gpus,speed\na,1\n", "no column speed"),
    ],
)
def test_wrong_rows_are_reported(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(SlowdownError, match=says):
        read_rows(tmp_path / "r.csv", Measured)


def test_files_without_rows_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SlowdownError, match="cannot be read"):
        read_rows(tmp_path / "none.csv", Measured)
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(b"model,gpus,speed\n" + b"a,1,2\n" * 999)[:-12])
    with pytest.raises(SlowdownError, match="cannot be read"):
        read_rows(tmp_path / "r.csv.gz", Measured)


def test_a_quote_that_is_never_closed_hides_no_rows(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text('model,gpus,speed\n"a,1,2.5\nb,2,3\n')
    with pytest.raises(SlowdownError, match="unexpected end of data"):
        read_rows(tmp_path / "r.csv", Measured)
