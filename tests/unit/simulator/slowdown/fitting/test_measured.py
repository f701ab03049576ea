"""Fits from published measurements, if their files are there."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from simulator.slowdown.links import parameter_server
from simulator.slowdown.neighbours import pair_table
from simulator.slowdown.placement import locality, scaling
from simulator.slowdown.profiles.papers import DL2_MEASURED

PERF = Path(__file__).parents[5].parent / "shared" / "data" / "perf"


def table(name: str) -> Path:
    path = PERF / name
    if not path.is_file():
        pytest.skip(f"the published table {name} is not at hand")
    return path


def test_pair_table_of_contention_rl() -> None:
    with table("deepshare/shared_thp_ratio.csv").open() as file:
        _, *shapes = next(lines := csv.reader(file))
        rows = [
            pair_table.PairRow(target, other, float(ratio))
            for target, *ratios in lines
            for other, ratio in zip(shapes, ratios, strict=True)
        ]
    pairs, report = pair_table.fit(rows)
    assert len(pairs) == len(rows) == 1296
    assert min(pairs.values()) == pytest.approx(0.123)
    assert report.mean_error < 0.13


def test_localities_of_pollux_on_four_gpus_a_node() -> None:
    rows = []
    with gzip.open(table("pollux_sia/all_step_times.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            gpus = sum(int(count) for count in row["placement"])
            if row["gpu_cluster"] == "aws" and row["table"] == "placements" and gpus > 1:
                tier = 1 if len(row["placement"]) == 1 else 2
                setting = f"{gpus},{row['local_bsz']}"
                rows.append(locality.LocalityRow(row["model"], setting, tier, 1 / float(row["step_time"])))
    curves, report = locality.fit(rows)
    assert report.mean_error < 0.10
    assert curves["bert"][2] < curves["cifar10"][2] < curves["deepspeech2"][2]


def test_parameter_servers_of_dl2() -> None:
    with table("dl2/worker_ps_speed.csv").open() as file:
        rows = [
            parameter_server.ServerRow(
                row["model"],
                int(float(row["tot_batch_size"])),
                int(row["num_worker"]),
                int(row["num_ps"]),
                float(row["total_speed_samples_per_s"]),
            )
            for row in csv.DictReader(file)
            if row["sync_mode"] == "dist_sync"
        ]
    found, report = parameter_server.fit([row for row in rows if row.examples_s > 0])
    assert len(found) == 8
    assert report.mean_error < 0.09
    shipped = {name: profile.servers for name, profile in DL2_MEASURED.items()}
    assert {name: pytest.approx(servers, rel=1e-3, abs=1e-6) for name, servers in found.items()} == shipped


def test_scaling_of_elasticflow() -> None:
    table("elasticflow/throughputs_A100/bert.csv")
    rows = []
    for path in sorted((PERF / "elasticflow/throughputs_A100").glob("*.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                batch = row.pop("global_batch_size")
                rows += [
                    scaling.ScalingRow(path.stem, batch, int(gpus), float(speed))
                    for gpus, speed in row.items()
                    if speed and float(speed) > 0
                ]
    _, report = scaling.fit(rows)
    assert report.mean_error < 0.15
