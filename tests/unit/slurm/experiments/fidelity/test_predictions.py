"""Predictions from jobs alone, without a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from slurm.experiments.fidelity.accuracy import compare, mean_error, worst_error
from slurm.experiments.fidelity.fit import Fit
from slurm.experiments.fidelity.measuring.isolated import Look, bytes_per_step, isolated
from slurm.experiments.fidelity.mix import KINDS, LAYER_BYTES, SHAPES, Lengths, TrainingJob, nominal_step_s, seeded_mix
from slurm.experiments.fidelity.predict import predict
from slurm.experiments.fidelity.records import Isolated, Measured, Replay, Run
from slurm.experiments.fidelity.report import as_json, draw
from slurm.experiments.slurm_log import times_of
from slurm.minicluster.host.network import LinkBytes

NIC = 12.5e6
FIXED_S = 2.0
LATENCY_S = 0.5

LOG = """
[2026-03-01T10:00:00.100] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=0 usec=412
[2026-03-01T10:00:01.250] sched: Allocate JobId=7 NodeList=n[1-2] #CPUs=2 Partition=dl
[2026-03-01T10:00:01.300] sched/backfill: _start_job: Started JobId=8 in dl on n3
[2026-03-01T10:00:09.000] _job_complete: JobId=7 WEXITSTATUS 0
[2026-03-01T10:00:09.750] _job_complete: JobId=7 done
"""


def run(name: str, steps: int, step_s: float, *, forward_s: float = 0.1, submit_s: float = 0.0) -> Run:
    start_s = submit_s + LATENCY_S
    times_s = tuple(start_s + 1.0 + at * step_s for at in range(steps + 1))
    end_s = start_s + FIXED_S + steps * step_s
    return Run(name, submit_s, start_s, end_s, ("n1",), start_s + 0.4, times_s, forward_s)


def ideal() -> list[Isolated]:
    """Return the measurements of jobs that follow the model of DDP's buckets exactly."""
    rows = []
    for kind in KINDS:
        for nodes in SHAPES:
            sent = 2 * (nodes - 1) / nodes * kind.layers * LAYER_BYTES
            step_s = nominal_step_s(kind, nodes, NIC)
            rows.append(Isolated(kind.name, nodes, run("", 20, step_s, forward_s=kind.forward_s), sent, 0.0))
    return rows


def job(name: str, nodes: int, gpus: int, *, kind: int = 2, steps: int = 40, submit_s: float = 0.0) -> TrainingJob:
    return TrainingJob(name, KINDS[kind], nodes, gpus, steps, 5, submit_s, 0)


def predicted(*jobs: TrainingJob, policy: str = "fifo") -> dict[str, float]:
    found = predict(jobs, [each.submit_s for each in jobs], Fit(ideal(), NIC), policy, NIC)
    return {each.name: each.jct_s for each in found}


def alone_s(each: TrainingJob) -> float:
    return LATENCY_S + FIXED_S + each.steps * nominal_step_s(each.kind, each.nodes, NIC)


def test_the_log_says_when_jobs_come_start_and_end() -> None:
    times = times_of(LOG)

    assert times.started["7"] - times.submitted["7"] == pytest.approx(1.15)
    assert times.ended["7"] - times.started["7"] == pytest.approx(8.5)
    assert set(times.started) == {"7", "8"}
    assert set(times.ended) == {"7"}


def test_constant_costs_are_separated_from_those_that_grow_with_steps() -> None:
    measured = run("", 20, 0.25)

    assert measured.step_s == pytest.approx(0.25)
    assert measured.fixed_s == pytest.approx(FIXED_S)


def test_bytes_of_a_step_are_those_of_the_busier_direction_while_the_job_trained() -> None:
    measured = run("", 20, 0.25)
    began_s = measured.times_s[0]
    looks = [
        Look(began_s + at, {"n1": LinkBytes(sent=int(1e6 * at), received=int(2e6 * at))}) for at in (-1, 1, 2, 4, 7)
    ]

    assert bytes_per_step(measured, looks) == pytest.approx(0.5e6)
    assert isolated("ranking", 2, measured, looks).fixed_bytes == pytest.approx(2e6 * 8 - 20 * 0.5e6)
    assert isolated("ranking", 1, measured, looks).bytes_per_step == 0


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("kind", range(3))
def test_the_fit_finds_what_is_hidden_and_so_a_step_at_any_rate(kind: int, nodes: int) -> None:
    fit = Fit(ideal(), NIC)
    each = job("one", nodes, 2, kind=kind)
    row = next(row for row in ideal() if (row.kind, row.nodes) == (each.kind.name, nodes))
    profile = fit.alone(each).profile
    beside_s = (LATENCY_S + FIXED_S) / each.steps

    for rate in (NIC, NIC / 2, NIC / 3):
        step_s = profile.step_s(row.bytes_per_step / rate)
        assert step_s == pytest.approx(beside_s + nominal_step_s(each.kind, nodes, rate))


def test_a_job_alone_takes_what_was_measured_alone() -> None:
    each = job("one", 2, 4)

    assert predicted(each)["one"] == pytest.approx(alone_s(each))


def test_jobs_that_share_nics_slow_each_other_down_and_others_do_not() -> None:
    beside = [job("one", 2, 4), job("two", 2, 4)]
    apart = [job("one", 2, 8), job("two", 2, 8)]

    assert predicted(*apart)["one"] == pytest.approx(alone_s(apart[0]))
    shared = predicted(*beside)["one"]
    sending_s = 40 * 2 * (2 - 1) / 2 * 4 * LAYER_BYTES / NIC
    assert alone_s(beside[0]) + 0.6 * sending_s < shared < alone_s(beside[0]) + sending_s


def test_jobs_occupy_the_nodes_that_they_request_and_wait_for_them() -> None:
    first, second = job("one", 4, 2), job("two", 4, 8, submit_s=1.0)

    found = predicted(first, second)

    assert found["two"] == pytest.approx(alone_s(first) - 1.0 + alone_s(second))


def test_a_mix_is_the_same_for_a_seed_and_jobs_end_before_their_limits() -> None:
    mix = seeded_mix(24, 3, NIC, Lengths())

    assert mix == seeded_mix(24, 3, NIC, Lengths())
    assert mix != seeded_mix(24, 4, NIC, Lengths())
    assert {each.nodes for each in mix} == set(SHAPES)
    assert all(4 * alone_s(each) < 60 * each.limit_min for each in mix)


def test_what_was_measured_survives_its_file_and_errors_add_up(tmp_path: Path) -> None:
    jobs = [job("one", 2, 4), job("two", 2, 4)]
    guesses = predict(jobs, [0.0, 0.0], Fit(ideal(), NIC), "fifo", NIC)
    runs = tuple(run(guess.name, 20, (guess.jct_s * 1.25 - FIXED_S - LATENCY_S) / 20) for guess in guesses)
    measured = Measured(3, 2, Lengths(), "100mbit", {}, tuple(ideal()), (Replay("fifo", 0.0, runs, 0.1),))

    again = Measured.from_json(json.loads(json.dumps(asdict(measured))))
    error = compare(again.replays[0], guesses)

    assert again == measured
    assert error.error == pytest.approx(-0.2)
    assert error.mean_absolute == pytest.approx(0.2)
    assert error.elsewhere == 2
    assert mean_error([error]) == worst_error([error]) == pytest.approx(0.2)
    assert as_json([error])["policies"][0]["each_job"][0]["error"] == pytest.approx(-0.2)
    draw([error], tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
