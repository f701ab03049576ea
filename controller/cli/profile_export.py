"""Writes the measurements of this cluster as a file for the simulator: `headway-sim run --profiles FILE`.

A model's computing time, bytes and overlap are the medians of its profiles, or those of the simulator's fit where there are enough
measurements between nodes: steps within one node do not show the fit how much is sent. A model that was profiled on single GPUs
alone has the median of the others' bytes and overlap. Localities, scalings and pairs come from the simulator's fits, with their
defaults where nothing was measured.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from controller.profiles.fit_rows import ModelRow
from policies.speeds.job_profiles import TYPICAL, filled_of
from protos.headway.v1 import admin_pb2
from simulator.errors import SimulatorError, SlowdownError
from simulator.slowdown.fitting.held_out import FitReport
from simulator.slowdown.links import step_fit
from simulator.slowdown.links.step_fit import StepRow
from simulator.slowdown.neighbours import pair_table
from simulator.slowdown.neighbours.pair_table import PairRow
from simulator.slowdown.placement import locality, scaling
from simulator.slowdown.placement.locality import LocalityRow
from simulator.slowdown.placement.scaling import ScalingRow
from simulator.slowdown.profiles.files import save_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles, Pair, key_of
from simulator.slowdown.profiles.papers import INTERFERENCE, PAIRS

Row = TypeVar("Row")
Fitted = TypeVar("Fitted")
_TABLES: dict[str, type] = {"pairs": PairRow, "locality": LocalityRow, "steps": StepRow, "scaling": ScalingRow}


class ExportError(Exception):
    """There is nothing to write, or it cannot be written; the text says what to do."""


def racks_of(cluster_toml: Path | None) -> dict[str, str]:
    """Return the rack of each node, from a file of `headway cluster --toml`. Raises ExportError."""
    if cluster_toml is None:
        return {}
    from simulator.cluster.cluster import parse_cluster

    try:
        cluster = parse_cluster(str(cluster_toml))
    except SimulatorError as error:
        raise ExportError(str(error)) from error
    return {name: str(rack) for name, rack in zip(cluster.names, cluster.racks, strict=True)}


def export(found: admin_pb2.SlowdownRows, to: Path, folder: Path | None) -> dict[str, Any]:
    """Write the file and, with `folder`, the rows as CSV. Returns a summary, as text and numbers. Raises ExportError."""
    tables: dict[str, list[Any]] = {name: _rows(kind, getattr(found, name)) for name, kind in _TABLES.items()}
    profiles, fits = measured_profiles(tables, _rows(ModelRow, found.models))
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for name, rows in tables.items():
                _write(folder / f"{name}.csv", _TABLES[name], rows)
        save_profiles(profiles, to)
    except OSError as error:
        raise ExportError(
            f"{error.filename}: cannot be written ({error.strerror}); give a file in a folder that you may write"
        ) from error
    return {
        "to": str(to),
        "rows": "" if folder is None else str(folder),
        "models": len(profiles.models),
        "pairs": 0 if profiles.pairs is PAIRS else len(profiles.pairs),
        "fits": fits,
    }


def measured_profiles(
    tables: Mapping[str, Sequence[Any]], models: Sequence[ModelRow]
) -> tuple[ModelProfiles, dict[str, str]]:
    """Return the profiles of the measured models, and the quality of each fit. Raises ExportError when nothing was measured."""
    if not models:
        raise ExportError(
            "no job was profiled in that time, so there is nothing to write; agents profile jobs when they start "
            "(`headway profile list` shows the measured jobs; --days sets the time)"
        )
    fits: dict[str, str] = {}
    known = _known(models)
    sending = {row.model for row in models if not isnan(row.bytes)} & {
        row.model for row in tables["steps"] if row.nodes > 1
    }
    steps = _fit(step_fit.fit, tables["steps"], "steps", fits) or {}
    known |= {
        model: replace(known[model], compute_s=fitted.compute_s, bytes=fitted.bytes, overlap=fitted.overlap)
        for model, fitted in steps.items()
        if model in sending and fitted.compute_s > 0 and fitted.bytes > 0  # 0: its rows between nodes were held out
    }
    curves = _fit(locality.fit, locality.compared(tables["locality"]), "locality", fits) or {}
    laws = _fit(scaling.fit, tables["scaling"], "scaling", fits) or {}
    sizes = defaultdict(set)
    for row in tables["scaling"]:
        sizes[row.model].add(row.gpus)
    for model, profile in known.items():
        curve = curves.get(model, profile.locality)
        law = laws.get(model) if len(sizes[model]) > 2 else None  # two sizes cannot separate contention from coherence
        known[model] = replace(profile, locality=curve, scaling=law)
    pairs = _fit(pair_table.fit, tables["pairs"], "pairs", fits) or _medians(tables["pairs"]) or PAIRS
    return ModelProfiles(known, pairs, INTERFERENCE), fits


def _known(models: Sequence[ModelRow]) -> dict[str, ModelProfile]:
    """Return the profiles of the models, with typical values for what was not measured."""
    columns = (np.array([row.bytes for row in models]), np.array([row.overlap for row in models]))
    usual = (TYPICAL.bytes, TYPICAL.overlap)
    sizes, overlaps = (
        filled_of(column, len(models), value).tolist() for column, value in zip(columns, usual, strict=True)
    )
    return {
        row.model: ModelProfile(row.compute_s, size, overlap=overlap)
        for row, size, overlap in zip(models, sizes, overlaps, strict=True)
    }


def _fit(
    fit: Callable[[Sequence[Row]], tuple[Fitted, FitReport]], rows: Sequence[Row], name: str, fits: dict[str, str]
) -> Fitted | None:
    """Return the fitted model; None when the fit fails. Adds a note on the result."""
    try:
        found, report = fit(rows)
    except SlowdownError as error:
        fits[name] = f"not fitted: {error.reason}"
        return None
    fits[name] = str(report)
    return found


def _medians(rows: Sequence[PairRow]) -> dict[Pair, float]:
    found: dict[Pair, list[float]] = defaultdict(list)
    for row in rows:
        found[key_of(row.target), key_of(row.other)].append(row.ratio)
    return {pair: median(ratios) for pair, ratios in found.items()}


def _rows(kind: type[Row], messages: Iterable[Any]) -> list[Row]:
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    return [kind(**{name: getattr(message, name) for name in names}) for message in messages]


def _write(path: Path, kind: type, rows: Sequence[Any]) -> None:
    names = [item.name for item in fields(kind)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in rows)
