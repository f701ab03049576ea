"""The files of a run: `jobs.csv`, `summary.json` and `series.csv`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from policies.model import IntColumn
from simulator.errors import SettingError
from simulator.results.result import NOT_YET, Result, Series
from simulator.traces.write import seconds_text

JOB_COLUMNS = (
    "job_id",
    "submit_time_s",
    "first_start_s",
    "finish_time_s",
    "num_gpus",
    "jct_s",
    "service_s",
    "preemptions",
    "nodes",
)
SERIES_COLUMNS = ("time_s", "busy_gpus", "free_gpus", "waiting_jobs", "running_jobs", "empty_nodes")


_LONGEST_NAME = 80
"""Longest name of a folder; file systems have limits of 143 to 255 bytes."""


def prepare_folder(path: Path) -> None:
    """Make the folder for results before the run, and check that it is writable. Raises SettingError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".headway-sim"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SettingError(
            f"--out {path}: nothing can be written there ({error.strerror}); give a folder that you may write to"
        ) from error


def folder_name(name: str) -> str:
    """Return the name of a folder for a policy's files: the policy's own, if it may be one.

    Otherwise it is cut, and its other characters are replaced; the digest at its end keeps it distinct from those of others.
    """
    plain = re.sub(r"[^\w.,:=+@~-]+", "_", name, flags=re.ASCII).lstrip(".")
    if plain == name and len(name) <= _LONGEST_NAME:
        return name
    return f"{plain[: _LONGEST_NAME - 9]}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def write_results(result: Result, summary: Mapping[str, object], folder: Path) -> None:
    """Write `jobs.csv`, `summary.json` and, for a recorded run, `series.csv` into the folder. Raises SettingError."""
    facts = {"summary": summary, "assumptions": result.assumptions}
    try:
        _write(folder / "jobs.csv", job_lines(result))
        _write(folder / "summary.json", [json.dumps(facts, indent=2)])
        if result.series is not None:
            _write(folder / "series.csv", series_lines(result, result.series))
    except OSError as error:
        raise SettingError(f"--out {folder}: cannot be written ({error.strerror}); give another folder") from error


def job_lines(result: Result) -> Iterator[str]:
    """Yield the lines of `jobs.csv`: a header, then one for each job in the order of the trace; times are exact."""
    yield ",".join(JOB_COLUMNS)
    jct = np.where(result.done, result.finish_ns - result.submit_ns, NOT_YET)
    yield from map(
        ",".join,
        zip(
            map(_quoted, result.job_ids),
            _times(result.submit_ns, result.begin_ns),
            _times(result.first_start_ns, result.begin_ns),
            _times(result.finish_ns, result.begin_ns),
            map(str, result.num_gpus.tolist()),
            _times(jct),
            _times(result.service_ns),
            map(str, result.stops.tolist()),
            result.nodes(),
            strict=True,
        ),
    )


def series_lines(result: Result, series: Series) -> Iterator[str]:
    """Yield the lines of `series.csv`: the cluster after each instant with an event."""
    yield ",".join(SERIES_COLUMNS)
    busy = busy_gpus(result, series)
    counts = (column.tolist() for column in (busy, series.free, series.waiting, series.running, series.empty))
    rows = (map(str, column) for column in counts)
    yield from map(",".join, zip(_times(series.time, result.begin_ns), *rows, strict=True))


def busy_gpus(result: Result, series: Series) -> IntColumn:
    """Return the GPUs in use at each instant of the series, from the runs if they are recorded (nodes may be down)."""
    spans = result.spans
    if spans is None:
        return int(result.node_gpus.sum()) - series.free
    times, levels = spans.busy()
    return np.concatenate(([0], levels))[np.searchsorted(times, series.time, side="right")]


def _write(path: Path, lines: Iterable[str]) -> None:
    """Write the lines to that path, completely or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _times(column: IntColumn, begin_ns: int = 0) -> list[str]:
    """Return nanoseconds after `begin_ns` as exact decimal seconds; empty where there is no time."""
    return [seconds_text(begin_ns + time) if time >= 0 else "" for time in column.tolist()]


def _quoted(text: str) -> str:
    """Return the text as a field of a CSV."""
    if any(char in text for char in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
