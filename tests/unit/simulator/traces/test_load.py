"""The load of a trace: work over capacity, exact where it is named, and the same from the beginning where it is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import TraceError
from simulator.traces.generators import from_text, generate, with_exact_load
from simulator.traces.load import at_load, check_load, offered_load, wrapped
from simulator.traces.trace import NS_PER_S, Trace

DAY_NS = 86_400 * NS_PER_S


def trace_of(*rows: tuple[float, int, float]) -> Trace:
    submit, gpus, duration = zip(*rows, strict=True)
    ids = [f"j{row}" for row in range(len(rows))]
    return Trace.of("t", ids, np.array(submit) * NS_PER_S, gpus, np.array(duration) * NS_PER_S)


def test_the_load_is_work_over_capacity_from_the_first_to_the_last_submission() -> None:
    found = offered_load(trace_of((100, 1, 50), (120, 2, 60), (200, 4, 10)), 2)

    assert found.work_gpu_h * 3600 == pytest.approx(50 + 120 + 40)
    assert found.capacity_gpu_h * 3600 == pytest.approx(200)
    assert found.load == pytest.approx(1.05)
    assert found.within_share == pytest.approx(170 / 210)
    assert offered_load(trace_of((0, 1, 5), (0, 1, 5)), 2).load is None


def test_submissions_are_scaled_to_the_load() -> None:
    trace = trace_of((100, 1, 50), (120, 2, 60), (200, 4, 10))
    scaled = at_load(trace, 2, 0.7)

    assert offered_load(scaled, 2).load == pytest.approx(0.7, rel=1e-4)
    assert scaled.submit_ns.tolist() == [0, 30 * NS_PER_S, 150 * NS_PER_S]
    assert scaled.duration_ns.tolist() == trace.duration_ns.tolist()


@pytest.mark.parametrize(
    ("trace", "load", "said"),
    [
        (trace_of((0, 1, 5), (0, 1, 5)), 0.9, "arrive at once"),
        (trace_of((0, 1, 5), (9, 1, 5)), 0.0, "a load of 0 is not possible"),
        (trace_of((0, 1, 1e-3), (9, 1, 1e-3)), 1e3, "and not a load of 1000"),
    ],
)
def test_a_load_that_no_times_give_is_an_error(trace: Trace, load: float, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        at_load(trace, 4, load)


@pytest.mark.parametrize("arrivals", ["poisson", "bursty", "uniform", "even", "daily"])
def test_every_generator_gives_the_load_that_it_is_asked_for(arrivals: str) -> None:
    for like in ("philly", "sched2", "contention-rl"):
        workload = from_text(
            like, {"jobs": "300", "arrivals": arrivals, "load": "0.9", "cluster_gpus": "256", "seed": "4"}
        )
        trace = with_exact_load(workload, generate(like, workload))
        check_load(trace, 256, 0.9)


def test_daily_arrivals_stay_at_their_hours() -> None:
    workload = from_text("philly", {"jobs": "20000", "arrivals": "daily", "load": "0.7", "cluster_gpus": "1024"})
    trace = with_exact_load(workload, generate("philly", workload))
    hours = np.bincount((trace.submit_ns // (3600 * NS_PER_S)) % 24, minlength=24) / (len(trace) / 24)

    check_load(trace, 1024, 0.7)
    assert hours[21] > 1.6
    assert hours[3] < 0.8


def test_a_wrapped_trace_is_as_busy_at_the_beginning_as_at_the_end() -> None:
    trace = trace_of((0, 1, 10), (50, 2, 270), (100, 1, 30))
    warm = wrapped(trace)

    # The period is 150 s: 170 s of the second job are beyond it, which are one whole period and 20 s.
    assert dict(zip(warm.job_ids, (warm.duration_ns // NS_PER_S).tolist(), strict=True)) == {
        "j1+1": 150,
        "j1+2": 20,
        "j0": 10,
        "j1": 100,
        "j2": 30,
    }
    assert warm.submit_ns.tolist()[:3] == [0, 0, 0]
    assert warm.num_gpus.tolist() == [2, 2, 1, 2, 1]
    assert offered_load(warm, 4).load == offered_load(trace, 4).load


def test_a_wrapped_philly_trace_is_busy_from_the_first_day() -> None:
    workload = from_text("philly", {"jobs": "5000", "load": "0.9", "cluster_gpus": "512"})
    trace = with_exact_load(workload, generate("philly", workload))
    assert "is that of jobs which still run at the last submission" in offered_load(trace, 512).warning()
    warm = wrapped(trace)
    assert offered_load(warm, 512).warning() == ""
    running = [
        int(warm.num_gpus[(warm.submit_ns <= at) & (warm.submit_ns + warm.duration_ns > at)].sum())
        for at in (1, DAY_NS)
    ]
    assert all(0.6 < gpus / 512 < 1.3 for gpus in running)
