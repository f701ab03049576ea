"""Workloads of Gavel's simulator (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies", OSDI 2020).

Lines of fields between tabs, without a header: job type, command, steps argument, needs-data flag, total steps, then arrival
time (s) and scale factor (GPUs) in the older form of seven columns, or scale factor, priority weight, SLO and arrival time in
the newer one of nine (ten with a working directory). The log says how many steps a job is and not how long it takes: that
needs `--speeds`, Gavel's measured steps a second, either `simulation_throughputs.json` or a CSV with the columns
gpu,job_type,scale_factor,isolated_steps_per_s; `--gpu` says on which GPU (default v100). `ResNet-18 (batch size 32)` becomes the
model ResNet-18 with batch size 32 times the scale factor: Gavel counts the batch of one GPU. Dropped: jobs of types that were
not measured at their scale, jobs of no steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from policies.documents import parse_json
from simulator.errors import TraceError
from simulator.traces.formats.log import Loaded, Log, Options, joined
from simulator.traces.numbers import MOST_GPUS, amounts
from simulator.traces.table import Dialect, lines_of, read_table
from simulator.traces.trace import MAX_TIME_S, NS_PER_S

Speeds = Mapping[tuple[str, int], float]
HEAD = ("job_type", "command")
OLD = (*HEAD, "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")
NEW_TAIL = ("num_steps_arg", "needs_data_dir", "total_steps", "scale_factor", "priority_weight", "slo", "arrival_time")
FORMS = {len(OLD): OLD, 9: (*HEAD, *NEW_TAIL), 10: (*HEAD, "working_directory", *NEW_TAIL)}
_TYPE = re.compile(r"(?P<model>.*?)(?: \(batch size (?P<batch>[0-9]{1,18})\))?")
_KEY = re.compile(r"\('(?P<type>.*)', (?P<scale>[0-9]{1,9})\)")


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the jobs of these workloads."""
    if options.speeds is None:
        mend = "give --speeds FILE: Gavel's simulation_throughputs.json, or a CSV of isolated_steps_per_s"
        raise TraceError("a Gavel workload counts steps, not seconds", mend=mend, path=paths[0])
    speeds = _speeds(options.speeds, options.gpu)
    return joined([_load(path, speeds) for path in paths], paths)


def _load(path: Path, speeds: Speeds) -> Loaded:
    columns = next(iter(lines_of(path, limited=True)), "").count("\t") + 1
    if columns not in FORMS:
        reason = f"has {columns} fields between tabs, not 7, 9 or 10"
        raise TraceError(reason, mend="give a workload of Gavel's simulator", path=path, line=1)
    names = FORMS[columns]
    log = Log(read_table(path, names, dialect=Dialect(delimiter="\t", names=names, quoting=False)))
    types, scales = log.texts("job_type"), log.numbers("scale_factor")
    scales = np.where((scales >= 1) & (scales <= MOST_GPUS), scales, 0)
    keys = zip(types, scales.astype(np.int64).tolist(), strict=True)
    steps_per_s = np.array([speeds.get(key, 0.0) for key in keys])
    steps = log.numbers("total_steps")
    log.drop(steps <= 0, "jobs of no steps")
    log.drop(steps_per_s <= 0, "jobs of types that were not measured at their scale")
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.clip(np.nan_to_num(steps / steps_per_s, posinf=0), 0, MAX_TIME_S)
    parsed = [match.groupdict() for job_type in types if (match := _TYPE.fullmatch(job_type))]
    return log.loaded(
        job_id=[f"{row:06d}" for row in range(log.table.rows)],
        submit_time_s="arrival_time",
        num_gpus="scale_factor",
        duration_s=np.round(seconds * NS_PER_S).astype(np.int64),
        model=[each["model"] or "" for each in parsed],
        batch_size=[_samples(each["batch"], scale) for each, scale in zip(parsed, scales.tolist(), strict=True)],
        total_steps="total_steps",
    )


def _samples(batch: str | None, scale: float) -> str:
    return str(int(batch) * int(scale)) if batch and scale >= 1 else ""


def _speeds(path: Path, gpu: str) -> Speeds:
    """Return the steps per second of each job type and scale, alone on that GPU."""
    if path.suffix == ".json":
        return _speeds_json(path, gpu)
    table = read_table(path, ("gpu", "job_type", "scale_factor", "isolated_steps_per_s"))
    rows = zip(
        table.columns["gpu"],
        table.columns["job_type"],
        np.nan_to_num(amounts(table.columns["scale_factor"])).tolist(),
        np.nan_to_num(amounts(table.columns["isolated_steps_per_s"])).tolist(),
        strict=True,
    )
    speeds = {(job_type, int(scale)): speed for on, job_type, scale, speed in rows if on == gpu}
    return _some(speeds, path, gpu, table.columns["gpu"])


def _speeds_json(path: Path, gpu: str) -> Speeds:
    try:
        measured = parse_json("".join(lines_of(path)))
        speeds = {
            (match["type"], int(match["scale"])): float(others["null"])
            for key, others in measured.get(gpu, {}).items()
            if (match := _KEY.fullmatch(key))
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        mend = "give Gavel's simulation_throughputs.json"
        raise TraceError(f"contains no speeds as Gavel writes them ({error})", mend=mend, path=path) from error
    return _some(speeds, path, gpu, measured)


def _some(speeds: Speeds, path: Path, gpu: str, there: Sequence[str] | Mapping[str, object]) -> Speeds:
    if not speeds:
        mend = f"give --gpu, one of {', '.join(sorted(set(there)))}"
        raise TraceError(f"contains no speeds of the GPU {gpu!r}", mend=mend, path=path)
    return speeds
