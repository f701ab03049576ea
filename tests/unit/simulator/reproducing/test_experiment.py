"""Contenders on the same traces: comparisons, seeds, and claims that hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.learned.evaluation.statistics import Mean, change
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError, SimulatorError
from simulator.reproducing.bound import average_jct_bound_s
from simulator.reproducing.experiment import (
    Claim,
    Contender,
    Experiment,
    Kind,
    MoreFigures,
    Run,
    Setting,
    perform,
    policy,
    run_of,
)
from simulator.runs.progress import OnProgress
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.contention_rl import ContentionRL, generate
from simulator.traces.trace import Trace
from tests.unit.simulator.commands import trace_of

SEEDS = range(1000, 1003)


def small(seed: int) -> Trace:
    return generate(ContentionRL(jobs=24, seed=seed, demands=(1, 2, 4, 8)))


def setting(name: str = "small") -> Setting:
    return Setting(
        name=name,
        says="24 jobs at once",
        trace=small,
        cluster=parse_cluster("2x8"),
        slowdown=("link-sharing",),
        profiles=paper_profiles(),
    )


def claim(**changes: object) -> Claim:
    usual = {"name": "a", "setting": "small", "metric": "avg_jct_s", "ours": "fewest-gpus", "against": ("fifo", "las")}
    return Claim(**{**usual, "paper": -0.1, "goal": 0.0, **changes})  # type: ignore[arg-type]


def experiment(*claims: Claim) -> Experiment:
    contenders = (
        policy("fewest-gpus", Kind.OURS),
        policy("fifo", Kind.BASELINE),
        policy("las", Kind.CONTROL),
        Contender("bound", Kind.BOUND, _bound),
    )
    return Experiment(
        name="toy",
        says="a <toy>",
        settings=(setting(),),
        contenders={"small": contenders},
        metrics=("avg_jct_s", "utilization"),
        claims=claims,
    )


def _bound(where: Setting, seed: int, _tell: OnProgress | None) -> Run:
    return Run({"avg_jct_s": average_jct_bound_s(where.trace(seed), where.cluster)})


def test_every_contender_runs_on_the_trace_of_every_seed() -> None:
    shares: list[float] = []
    outcome = perform(experiment(), SEEDS, shares.append)
    assert [len(runs) for runs in outcome.runs.values()] == [3] * 4
    assert shares and max(shares) <= 1.0 + 1e-9
    mine = [policy("fifo", Kind.BASELINE).run(setting(), seed, None).figures["avg_jct_s"] for seed in SEEDS]
    assert outcome.values("small", "fifo", "avg_jct_s") == mine
    rows = {(row["policy"], row["metric"]): row["value"] for row in outcome.rows()}
    assert rows["fifo", "avg_jct_s"] == pytest.approx(sum(mine) / 3)
    assert ("bound", "utilization") not in rows and ("bound", "avg_jct_s") in rows


def test_a_claim_is_compared_pair_by_pair_with_the_best() -> None:
    outcome = perform(experiment(claim(), claim(goal=-0.99), claim(ours="bound", against=("fifo",))), SEEDS, _nobody)
    first, unreachable, bound = outcome.findings()
    ours, fifo = (outcome.values("small", name, "avg_jct_s") for name in ("fewest-gpus", "fifo"))
    assert first.against == "fifo"
    assert first.ours == change(ours, fifo)
    assert first.holds and not unreachable.holds
    assert bound.ours.mean < first.ours.mean
    reported = first.as_json()
    assert {name: reported[name] for name in ("name", "paper", "holds")} == {"name": "a", "paper": -0.1, "holds": True}
    assert (reported["ours"], reported["ci95"]) == (first.ours.mean, first.ours.ci95)


@pytest.mark.parametrize("metric", ["avg_jct_s", "utilization"])
def test_a_factor_is_how_many_times_as_good(metric: str) -> None:
    outcome = perform(experiment(claim(metric=metric, against=("fifo",), factor=True, goal=1.0)), SEEDS, _nobody)
    (found,) = outcome.findings()
    ours, fifo = (outcome.values("small", name, metric) for name in ("fewest-gpus", "fifo"))
    pairs = list(zip(ours, fifo, strict=True))
    expected = Mean.of([a / b for a, b in pairs] if metric == "utilization" else [b / a for a, b in pairs])
    assert found.ours == expected
    assert expected.ci95 is not None
    assert found.mean_holds == (expected.mean > 1.0)
    assert found.holds == (expected.mean - expected.ci95 > 1.0)


@pytest.mark.parametrize("factor", [False, True])
def test_equal_runs_are_no_gain(factor: bool) -> None:
    same = {"against": ("fewest-gpus",), "factor": factor}
    no_change = 1.0 if factor else 0.0
    worse = 0.95 if factor else 0.05
    outcome = perform(experiment(claim(**same, goal=no_change), claim(**same, goal=worse)), SEEDS, _nobody)
    none, alike = outcome.findings()
    assert (none.ours.mean, none.ours.ci95) == (no_change, 0.0)
    assert not none.holds and not none.mean_holds
    assert alike.holds and alike.mean_holds


@pytest.mark.parametrize("factor", [False, True])
def test_a_claim_without_others_is_about_the_figure_itself(factor: bool) -> None:
    ours = {"metric": "utilization", "against": (), "factor": factor}
    outcome = perform(experiment(claim(**ours, goal=0.01), claim(**ours, goal=1.01)), SEEDS, _nobody)
    reached, missed = outcome.findings()
    assert reached.ours == missed.ours == Mean.of(outcome.values("small", "fewest-gpus", "utilization"))
    assert reached.against == "" and reached.holds and not missed.mean_holds


def test_unfinished_jobs_give_no_result() -> None:
    with pytest.raises(SimulatorError, match="no policy: left 24 of 24 jobs"):
        run_of(Simulation(small(1000), parse_cluster("2x8"), None, Settings()), "no policy", None)


def test_no_policy_is_below_the_bound() -> None:
    where = setting()
    for seed in range(4):
        bound = average_jct_bound_s(small(seed), where.cluster)
        for name in ("fewest-gpus", "srtf", "fifo"):
            run = policy(name, Kind.CONTROL).run(where, seed, None)
            assert 0.3 * run.figures["avg_jct_s"] < bound <= run.figures["avg_jct_s"]


def test_the_bound_is_reached_where_nothing_is_in_the_way() -> None:
    """One GPU: shortest first is best, and the bound is what it gives."""
    trace = trace_of([(0, 1, 10), (0, 1, 30), (0, 1, 20)])
    assert average_jct_bound_s(trace, parse_cluster("1x1")) == pytest.approx((10 + 30 + 60) / 3)


def test_the_bound_is_for_jobs_that_come_at_once() -> None:
    with pytest.raises(ValueError, match="do not arrive at once"):
        average_jct_bound_s(trace_of([(0, 1, 10), (5, 1, 30)]), parse_cluster("1x1"))


def _nobody(_share: float) -> None:
    pass


def test_a_part_of_an_experiment_has_the_claims_of_its_settings() -> None:
    whole = replace(
        experiment(claim(), claim(name="b", setting="large")),
        settings=(setting(), setting("large")),
        contenders={name: (policy("fifo", Kind.BASELINE),) for name in ("small", "large")},
        more_tables=tuple(MoreFigures(name, "more", ("makespan_s",)) for name in ("small", "large")),
    )
    part = whole.only("arg")
    assert [each.setting for each in part.more_tables] == ["large"]
    assert [each.name for each in part.settings] == ["large"] == list(part.contenders)
    assert [each.name for each in part.claims] == ["b"]
    assert whole.only("") == whole
    named = replace(whole, settings=(setting("large, busy"), setting("large")))
    assert [each.name for each in named.only("large").settings] == ["large"]
    with pytest.raises(SettingError, match=r"toy has no setting with 'huge' in its name; its settings: small; large"):
        whole.only("huge")
