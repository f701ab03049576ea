"""The papers' workloads: generated traces have the published distributions. Seeds are fixed; bounds are some five standard errors
wide."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simulator.errors import TraceError
from simulator.traces.generators import GENERATORS, dl2, from_text, generate, parameters_of
from simulator.traces.generators.contention_rl import MIXES, MODELS, ContentionRL
from simulator.traces.generators.dl2 import DL2
from simulator.traces.generators.marl import Marl
from simulator.traces.generators.philly import RUN_TIMES, Philly
from simulator.traces.generators.rl_taps import RLTaps
from simulator.traces.generators.sched2 import Sched2
from simulator.traces.generators.workload import ARRIVALS, BY_HOUR
from simulator.traces.trace import NS_PER_S, Trace


def hours(trace: Trace) -> np.ndarray:
    return np.asarray(trace.duration_ns / NS_PER_S / 3600)


def gaps_s(trace: Trace) -> np.ndarray:
    return np.diff(trace.submit_ns) / NS_PER_S


@pytest.mark.parametrize("like", GENERATORS)
def test_a_seed_gives_one_trace_and_another_seed_another(like: str) -> None:
    first, again, other = (generate(like, from_text(like, {"seed": seed, "jobs": "200"})) for seed in ("3", "3", "4"))
    assert first.same_jobs(again)
    assert not first.same_jobs(other)
    assert first.name == f"{like}-3"
    assert len(first) == 200


@pytest.mark.parametrize("like", GENERATORS)
def test_the_papers_numbers_are_the_defaults(like: str) -> None:
    trace = generate(like)
    jobs = {"contention-rl": 256, "sched2": 1000, "dl2": 200, "rl-taps": 400, "marl": 3000, "philly": 10_000}
    assert len(trace) == jobs[like]
    assert trace.submit_ns[0] == 0
    assert all(trace.model)
    assert (trace.batch_size > 0).all()
    assert trace.num_gpus.max() <= parameters_of(like)().cluster_gpus  # type: ignore[call-arg] # every generator has defaults


@pytest.mark.parametrize("mix", MIXES)
def test_contention_rl(mix: str) -> None:
    trace = generate("contention-rl", ContentionRL(mix=mix, jobs=240))
    counts = Counter(trace.model)
    unit = 240 / sum(MIXES[mix])
    assert [counts[model] for model in MODELS] == [share * unit for share in MIXES[mix]]
    assert set(trace.submit_ns) == {0}
    assert set(trace.duration_ns) == {3600 * NS_PER_S}
    assert set(trace.num_gpus) == {1, 2, 4, 8, 16, 32}
    assert sum(first == second for first, second in pairwise(trace.model)) < 120, "models are shuffled"


def test_contention_rl_distributes_the_remaining_jobs_among_the_models() -> None:
    counts = Counter(generate("contention-rl", ContentionRL()).model)
    assert sum(counts.values()) == 256
    assert max(counts.values()) - min(counts.values()) == 1


def test_contention_rl_with_training_times_that_differ() -> None:
    hours = (
        np.array(generate("contention-rl", ContentionRL(jobs=20_000, duration_spread=0.8)).duration_ns)
        / NS_PER_S
        / 3600
    )
    assert hours.mean() == pytest.approx(1.0, rel=0.03)
    assert np.log(hours).std() == pytest.approx(0.8, rel=0.03)


@pytest.mark.parametrize("share", [0.60, 0.68, 0.75])
def test_sched2(share: float) -> None:
    trace = generate("sched2", Sched2(jobs=20_000, one_gpu_share=share))
    counts = Counter(trace.model)
    assert (trace.num_gpus == 1).mean() == pytest.approx(share, abs=0.02)
    assert counts["transformer"] / 20_000 == pytest.approx(0.60, abs=0.02)
    assert counts["deepspeech"] / 20_000 == pytest.approx(0.30, abs=0.02)
    assert gaps_s(trace).mean() == pytest.approx(172, rel=0.08)
    assert gaps_s(trace).std() / gaps_s(trace).mean() == pytest.approx(2.0, rel=0.1)
    assert np.median(hours(trace)) == pytest.approx(1.0, rel=0.05)
    assert hours(trace).mean() == pytest.approx(1.5, rel=0.05)
    assert hours(trace).min() >= 0.05
    assert hours(trace).max() <= 24


def test_dl2() -> None:
    trace = generate("dl2", DL2(jobs=20_000))
    assert hours(trace).mean() * 60 == pytest.approx(147, rel=0.06)
    assert 0.5 < (hours(trace) > 1).mean() < 0.65
    assert 0.001 < (hours(trace) > 24).mean() < 0.02
    assert min(Counter(trace.model).values()) > 20_000 / 8 * 0.9
    assert (trace.min_gpus == 1).all()
    assert (trace.max_gpus == 16).all()
    assert gaps_s(trace).mean() == pytest.approx(240, rel=0.05)
    epochs = np.array(trace.extra["epochs"], dtype=int)
    assert (epochs >= 1).all()
    assert np.mean((epochs >= 10) & (epochs < 1000)) > 0.8
    # A job of one model is longer because it trains more epochs.
    for model, epoch_s in zip(dl2.MODELS, dl2.EPOCH_S, strict=True):
        many = (np.array(trace.model) == model) & (epochs >= 100)
        assert hours(trace)[many] * 3600 / epochs[many] == pytest.approx(epoch_s, rel=0.21)


def test_rl_taps_with_elastic_jobs() -> None:
    fixed = generate("rl-taps", RLTaps(jobs=200))
    half = generate("rl-taps", RLTaps(jobs=200, elastic=0.5))
    assert fixed.min_gpus.tolist() == fixed.max_gpus.tolist() == fixed.num_gpus.tolist()
    # the same jobs, some of which may have every number of GPUs
    assert (half.num_gpus == fixed.num_gpus).all()
    sizes = set(zip(half.min_gpus.tolist(), half.max_gpus.tolist(), strict=True))
    assert (1, 32) in sizes
    elastic = ((half.min_gpus == 1) & (half.max_gpus == 32)).sum()
    assert 60 < elastic < 140
    assert set(generate("rl-taps", RLTaps(jobs=20, elastic=1.0)).max_gpus) == {32}


def test_rl_taps() -> None:
    trace = generate("rl-taps", RLTaps(jobs=20_000))
    lengths = Counter(int(text) for text in trace.extra["length_steps"])
    assert set(lengths) == {1, 2, 3, 6, 7, 8, 9, 10}
    assert sum(lengths[step] for step in (1, 2, 3)) / 20_000 == pytest.approx(0.5, abs=0.02)
    sizes = Counter(trace.num_gpus.tolist())
    assert set(sizes) == set(range(1, 13))
    assert sum(sizes[size] for size in range(1, 8)) / 20_000 == pytest.approx(0.5, abs=0.02)
    assert len(set(trace.model)) == 35
    assert set(trace.batch_size) == {32, 64, 128, 256, 512}
    assert gaps_s(trace) == pytest.approx(48.302, abs=0.002)
    of_one_step = {
        ns for ns, text in zip(trace.duration_ns.tolist(), trace.extra["length_steps"], strict=True) if text == "1"
    }
    assert [ns / NS_PER_S for ns in of_one_step] == pytest.approx([48.302 / 0.9], abs=0.002)


def test_marl() -> None:
    trace = generate("marl", Marl(jobs=20_000, arrivals="poisson"))
    assert set(trace.num_gpus) == {1, 2, 3, 4}
    assert set(trace.extra["num_ps"]) == {"1", "2", "3", "4"}
    assert len(set(trace.vc)) == 20
    an_interval = 1800 / gaps_s(trace).mean() / 20
    assert an_interval == pytest.approx(15, rel=0.05)
    assert trace.num_gpus.mean() == pytest.approx(2.5, abs=0.05)
    testbed = generate("marl", Marl(jobs=200, least_workers=2, most_servers=2))
    assert set(testbed.num_gpus) == {2, 3, 4}
    assert set(testbed.extra["num_ps"]) == {"1", "2"}


def test_philly_follows_the_log() -> None:
    trace = generate("philly", Philly(jobs=200_000))
    sizes = Counter(trace.num_gpus.tolist())
    assert sizes[1] / 200_000 == pytest.approx(0.866, abs=0.005)
    assert sizes[8] / 200_000 == pytest.approx(0.0514, abs=0.003)
    seconds = trace.duration_ns / NS_PER_S
    assert np.percentile(seconds, 50) == pytest.approx(1217, rel=0.05)
    assert np.percentile(seconds, 90) == pytest.approx(31_300, rel=0.08)
    assert np.percentile(seconds, 99) == pytest.approx(667_000, rel=0.10)
    of_eight = seconds[(trace.num_gpus > 4) & (trace.num_gpus <= 8)]
    median_s = next(times[2] for percent, *times in RUN_TIMES if percent == 50)
    assert np.median(of_eight) == pytest.approx(median_s, rel=0.12)
    assert gaps_s(trace).mean() == pytest.approx(106, rel=0.02)
    users = Counter(trace.user)
    assert users["u1"] / users["u2"] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("arrivals", [each for each in ARRIVALS if each != "batch"])
def test_a_load_is_what_the_cluster_is_offered(arrivals: str) -> None:
    workload = Philly(jobs=50_000, load=0.8, cluster_gpus=16_000, arrivals=arrivals)
    trace = generate("philly", workload)
    span_s = trace.submit_ns[-1] / NS_PER_S
    offered = (trace.num_gpus * (trace.duration_ns / NS_PER_S)).sum() / (span_s * 16_000)
    assert offered == pytest.approx(0.8, rel=0.06)


def test_twice_the_load_is_half_the_time() -> None:
    one, two = (generate("philly", Philly(jobs=1000, load=load)) for load in (0.5, 1.0))
    assert one.submit_ns[-1] / two.submit_ns[-1] == pytest.approx(2, rel=1e-6)
    assert one.duration_ns.tolist() == two.duration_ns.tolist()


def test_submissions_follow_the_hours_of_the_day() -> None:
    trace = generate("philly", Philly(jobs=200_000, arrivals="daily", mean_gap_s=30.0))
    counts = np.bincount((trace.submit_ns // (3600 * NS_PER_S)) % 24, minlength=24)
    assert counts / counts.mean() == pytest.approx(np.array(BY_HOUR) / np.mean(BY_HOUR), rel=0.12)
    assert (np.diff(trace.submit_ns) >= 0).all()


def test_small_clusters_get_only_jobs_that_fit() -> None:
    assert generate("philly", Philly(jobs=5000, cluster_gpus=8)).num_gpus.max() == 8


@pytest.mark.parametrize(
    ("like", "texts", "message"),
    [
        ("nope", {}, "there is no generator 'nope'; give one of contention-rl"),
        ("philly", {"colour": "red"}, "philly has no parameter 'colour'; give one of jobs, seed"),
        ("philly", {"jobs": "many"}, "jobs cannot be 'many'; give something like jobs=10000"),
        ("philly", {"load": "x"}, "load cannot be 'x'; give something like load=0.8"),
        ("contention-rl", {"demands": "2,4"}, "demands cannot be '2,4'; give something like demands=1/2/4/8/16/32"),
        ("philly", {"jobs": "0"}, "0 jobs cannot be drawn"),
        ("philly", {"load": "-1"}, "a load of -1.0 is not possible"),
        ("philly", {"load": "nan"}, "a load of nan is not possible"),
        ("philly", {"load": "1e7"}, "a load of 10000000.0 is not possible; give more than 0 and less than 1e6"),
        ("philly", {"arrivals": "never"}, "arrivals 'never' are not known; give one of batch"),
        ("philly", {"mean_gap_s": "inf"}, "a mean gap of inf s is not possible"),
        ("philly", {"mean_gap_s": "1e9"}, "arrive over more than 126 years"),
        ("philly", {"seed": "-1"}, "the seed -1 is negative"),
        ("contention-rl", {"mix": "odd"}, "there is no mix 'odd'; give one of normal"),
        (
            "contention-rl",
            {"load": "0.9"},
            "a load has no meaning for jobs that all arrive at once; give other arrivals",
        ),
        ("contention-rl", {"cluster_gpus": "8"}, "a job of 32 GPUs does not fit a cluster of 8"),
        ("contention-rl", {"demands": "0/1"}, "must be positive"),
        ("contention-rl", {"duration_spread": "-1"}, "its spread from 0 to 3"),
        ("sched2", {"one_gpu_share": "1.5"}, "give a share between 0 and 1"),
        ("dl2", {"mean_s": "1"}, "median_s must be more than 0 and less than mean_s"),
        ("dl2", {"median_s": "0"}, "median_s must be more than 0 and less than mean_s"),
        ("rl-taps", {"short": "3/1"}, "the first not the larger"),
        ("rl-taps", {"elastic": "2"}, "elastic is 2"),
        ("marl", {"schedulers": "0"}, "must be at least 1"),
        ("marl", {"least_workers": "5"}, "most_workers at least as many"),
    ],
)
def test_impossible_workloads_are_reported(like: str, texts: dict[str, str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        generate(like, from_text(like, texts))


def test_parameters_from_text() -> None:
    workload = from_text("contention-rl", {"demands": "2/4/8", "mix": "heavy", "duration_s": "60", "load": "0.9"})
    assert workload == replace(ContentionRL(), demands=(2, 4, 8), mix="heavy", duration_s=60.0, load=0.9)
