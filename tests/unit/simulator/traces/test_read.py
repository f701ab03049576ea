"""Reading traces: accepted inputs, and the message for each bad input."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import TraceError
from simulator.traces import files
from simulator.traces.read import read_trace
from tests.unit.simulator.traces.build import HEADER, csv_file


def test_a_trace_with_every_column(tmp_path: Path) -> None:
    header = (
        "colour,duration_s,num_gpus,submit_time_s,job_id,user,vc,status,model,batch_size,min_gpus,max_gpus,"
        "time_limit_s,preemptible"
    )
    path = csv_file(tmp_path, "red,10.5,4,7,a,ann,v,done,bert,32,2,8,60,0", "blue,1,2,3,b,,,,,,,,,", header=header)
    trace = read_trace(path)
    assert trace.name == "trace"
    assert trace.job_ids == ("b", "a")
    assert trace.submit_ns.tolist() == [3 * 10**9, 7 * 10**9]
    assert trace.duration_ns.tolist() == [10**9, 10_500_000_000]
    assert (trace.min_gpus.tolist(), trace.num_gpus.tolist(), trace.max_gpus.tolist()) == ([2, 2], [2, 4], [2, 8])
    assert trace.limit_ns.tolist() == [-1, 60 * 10**9]
    assert trace.preemptible.tolist() == [True, False]
    assert trace.batch_size.tolist() == [-1, 32]
    assert (trace.user, trace.vc, trace.status, trace.model) == (("", "ann"), ("", "v"), ("", "done"), ("", "bert"))
    assert trace.extra == {"colour": ("blue", "red")}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_blank_lines_and_quotes_and_a_byte_order_mark_are_read(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t.csv"
    rows = ["\ufeff" + HEADER + ",user", "", "a,0,1,5,ann", "", '"b, the second",1,1,5,"x\n""y"""', "c,2,1,5,carl"]
    path.write_bytes(end.join(rows).encode())
    trace = read_trace(path)
    assert trace.job_ids == ("a", "b, the second", "c")
    assert trace.user == ("ann", 'x\n"y"', "carl")


def test_both_readers_give_equal_traces(tmp_path: Path) -> None:
    rows = [f"j{row},{row * 7 % 1000},{row % 8 + 1},{row + 1}" for row in range(30_000)]
    plain = read_trace(csv_file(tmp_path, *rows, name="plain.csv"))
    quoted = read_trace(csv_file(tmp_path, *rows[:20_000], '"x",0,1,1', *rows[20_000:], name="quoted.csv"))
    assert len(plain) == 30_000
    kept = [row for row, job_id in enumerate(quoted.job_ids) if job_id != "x"]
    assert quoted.take(kept).same_jobs(plain)


@pytest.mark.parametrize("packed", [".csv.gz", ".csv.zst"])
def test_packed_files(tmp_path: Path, packed: str) -> None:
    text = (HEADER + "\n" + "".join(f"j{row},{row},1,{row + 1}.5\n" for row in range(50_000))).encode()
    path = tmp_path / f"t{packed}"
    path.write_bytes(_packed(text, packed))
    trace = read_trace(path)
    assert (trace.name, len(trace), int(trace.duration_ns[-1])) == ("t", 50_000, 50_000_500_000_000)


def _packed(text: bytes, suffix: str) -> bytes:
    if suffix.endswith("gz"):
        return gzip.compress(text)
    zstandard = pytest.importorskip("zstandard")
    half = len(text) // 2  # two frames, as appending to a file makes them
    return bytes(zstandard.compress(text[:half]) + zstandard.compress(text[half:]))


@pytest.mark.parametrize("packed", [".csv.gz", ".csv.zst"])
def test_packed_files_cut_short_at_any_length_are_reported(tmp_path: Path, packed: str) -> None:
    whole = _packed((HEADER + "\n" + "".join(f"j{row},{row},1,{row + 1}\n" for row in range(3000))).encode(), packed)
    path = tmp_path / f"t{packed}"
    cuts = [len(whole) * tenth // 10 for tenth in range(1, 10)] + [len(whole) - 1]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        if packed == ".csv.zst" and _ends_a_frame(whole, cut):
            continue
        with pytest.raises(TraceError, match=r"end too early; the file is cut short or damaged"):
            read_trace(path)


def _ends_a_frame(whole: bytes, cut: int) -> bool:
    return whole[cut : cut + 4] == b"\x28\xb5\x2f\xfd"


@pytest.mark.parametrize("packed", [".csv.gz", ".csv.zst"])
def test_packed_files_that_are_damaged_are_reported(tmp_path: Path, packed: str) -> None:
    whole = bytearray(_packed((HEADER + "\n" + "a,0,1,5\n" * 3000).encode(), packed))
    whole[len(whole) // 2] ^= 0xFF
    whole[6:9] = b"\xff\xff\xff"
    path = tmp_path / f"t{packed}"
    path.write_bytes(bytes(whole))
    with pytest.raises(TraceError, match=r"damaged|too early"):
        read_trace(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,0,1,5", "b,1,1,-5"], "line 3, column duration_s: '-5' is negative; give seconds, more than 0"),
        (["a,0,1,0"], "line 2, column duration_s: '0' is zero; .* leave the job out"),
        (["a,0,1,nan"], "line 2, column duration_s: 'nan' is not a number .a missing value."),
        (["a,inf,1,5"], "line 2, column submit_time_s: 'inf' is infinite"),
        (["a,-1,1,5"], "line 2, column submit_time_s: '-1' is negative; give seconds, 0 or more"),
        (["a,0,1.5,5"], "line 2, column num_gpus: '1.5' is not a whole number of GPUs"),
        (["a,0,0,5"], "line 2, column num_gpus: '0' is zero; .* at least 1, or leave out jobs without GPUs$"),
        (["a,0,1,5", "", "b,0,1,5", "a,9,1,5"], "line 5, column job_id: 'a' is already the id of line 2"),
        (["a,0,1,5", ",0,1,5"], "line 3, column job_id: '' is empty"),
        (["a,0,1,5", "b,0,1"], "line 3: has 3 fields, the header has 4"),
        (["a,0,1,5", '"b\nb",0,1,5', "c,0,1,5,6"], "line 5: has 5 fields, the header has 4"),
        (["a,1500000000000,1,5"], "more than 126 years; give seconds, not milliseconds"),
        ([], "has a header and no rows"),
    ],
)
def test_errors_of_bad_rows_have_file_line_column_and_mend(tmp_path: Path, rows: list[str], message: str) -> None:
    path = csv_file(tmp_path, *rows)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (
            "job_id,submit_time,num_gpus,duration_s",
            "a,0,1,5",
            "line 1, column submit_time_s: is not in .*rename.*'submit_time'",
        ),
        (
            "x",
            "a",
            "column job_id: is not in the header .x.; the header must have job_id,submit_time_s,num_gpus,duration_s",
        ),
        (HEADER.replace(",", ";"), "a;0;1;5", "is not in the header .*; separate columns with commas, not with ';'$"),
        (HEADER.replace(",", "\t"), "a\t0\t1\t5", r"separate columns with commas, not with '.t'$"),
        (HEADER + ",user,user", "a,0,1,5,x,y", "column user: appears twice"),
        (HEADER + ",min_gpus", "a,0,2,5,3", "column min_gpus: '3' is more than num_gpus, which is 2"),
        (HEADER + ",max_gpus", "a,0,2,5,1", "column max_gpus: '1' is less than num_gpus, which is 2"),
        (HEADER + ",preemptible", "a,0,2,5,maybe", "column preemptible: 'maybe' is neither yes nor no"),
        (HEADER + ",batch_size", "a,0,2,5,0", "column batch_size: '0' is zero; give a whole number of samples"),
        (HEADER + ",batch_size", "a,0,2,5,-1", "samples, at least 1, or leave it empty if it is not known$"),
        (
            HEADER + ",time_limit_s",
            "a,0,2,5,0",
            "is zero; give seconds, more than 0, or leave it empty if it is not known$",
        ),
        (
            HEADER + ",time_limit_s",
            "a,0,2,5,-1",
            "is negative; give seconds, more than 0, or leave it empty if it is not known$",
        ),
        (HEADER + ",time_limit_s", "a,0,2,5,-1", "column time_limit_s: '-1' is negative"),
    ],
)
def test_bad_headers_and_optional_columns(tmp_path: Path, header: str, row: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(csv_file(tmp_path, row, header=header))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"\n\n", "no header line"),
        ("t.csv", bytes(range(256)) * 10, "contains a zero byte; give a CSV file in UTF-8"),
        ("t.csv", HEADER.encode() + b"\na,0,1,5\nb\xe4r,0,1,5\n", "line 3: is not UTF-8 .byte 0xe4."),
        ("t.csv.gz", HEADER.encode() + b"\na,0,1,5\n", "is named .gz but contains something else"),
        ("t.csv.zst", b"not zstd at all", "is named .zst but contains something else"),
        ("t.parquet", HEADER.encode() + b"\na,0,1,5\n", "is named .parquet but is not a Parquet file"),
        ("t.parquet", b"PAR1" + b"junk" * 9, "the parquet data are damaged|needs the package pyarrow"),
        ("t.csv", b"x" * (files.BLOCK_BYTES * 9), "line 1: the line is longer than 1,048,576 bytes"),
    ],
)
def test_files_that_are_not_traces_are_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.path == path


@pytest.mark.parametrize("before", [3, 30_000])
def test_a_quote_that_is_never_closed_is_reported_where_its_record_begins(tmp_path: Path, before: int) -> None:
    rows = [f"j{row},{row},1,5" for row in range(before)]
    path = csv_file(tmp_path, *rows, "", '"two\nlines",0,1,5', '"open,0,1,5', *(f"k{row},0,1,5" for row in range(1000)))
    with pytest.raises(
        TraceError, match=f"line {before + 5}: is not valid CSV .unexpected end of data.; close each quote"
    ):
        read_trace(path)
    assert len(read_trace(path, limit=before + 1)) == before + 1


@pytest.mark.parametrize("header", ['"job_id,submit_time_s,num_gpus,duration_s', HEADER + ',"us"er'])
def test_a_header_with_a_wrong_quote_is_reported(tmp_path: Path, header: str) -> None:
    with pytest.raises(TraceError, match="line 1: is not valid CSV"):
        read_trace(csv_file(tmp_path, "a,0,1,5,x", header=header))


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened: No such file"):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(TraceError, match="cannot be opened: Is a directory"):
        read_trace(tmp_path)


def test_a_limit_takes_the_first_rows_and_sees_no_others(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,9,1,5", "b,3,1,5", "c,0,1,5", "d,bad row")
    assert read_trace(path, limit=2).job_ids == ("b", "a")
    assert read_trace(path, limit=3).job_ids == ("c", "b", "a")
    with pytest.raises(TraceError, match="line 5"):
        read_trace(path, limit=4)
    with pytest.raises(TraceError, match="give a limit of at least 1"):
        read_trace(path, limit=0)


def test_a_file_of_10_gb_is_refused_at_once_and_read_with_a_limit(tmp_path: Path) -> None:
    path = csv_file(tmp_path, *(f"j{row},{row},1,5" for row in range(100_000)))
    with path.open("r+b") as file:
        file.truncate(10 << 30)  # a hole: nothing is stored, and everything of it would be read
    with pytest.raises(TraceError, match=r"too large for memory \(10\.0 GiB\); take its first rows with --limit N"):
        read_trace(path)
    assert len(read_trace(path, limit=1000)) == 1000


def test_a_packed_file_that_grows_too_large_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "\n" + "".join(f"j{row},0,1,5\n" for row in range(200_000))).encode()))
    with pytest.raises(TraceError, match="too large for memory"):
        read_trace(path)
    assert len(read_trace(path, limit=150_000)) == 150_000


def test_a_csv_needs_no_heavy_package(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,0,1,5")
    code = (
        "import sys; from simulator.traces.read import read_trace; read_trace(sys.argv[1]);"
        "print(*({'pyarrow', 'zstandard', 'matplotlib', 'pandas', 'torch', 'grpc'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""


def test_equal_texts_are_stored_once(tmp_path: Path) -> None:
    path = csv_file(tmp_path, *(f"j{row},{row},1,5,ann" for row in range(100)), header=HEADER + ",user")
    assert len({id(user) for user in read_trace(path).user}) == 1


def test_columns_are_64_bits_wide(tmp_path: Path) -> None:
    trace = read_trace(csv_file(tmp_path, "a,0,1,5"))
    assert {trace.submit_ns.dtype, trace.num_gpus.dtype, trace.file_rows.dtype} == {np.dtype(np.int64)}
