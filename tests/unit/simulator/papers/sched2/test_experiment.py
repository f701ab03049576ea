"""The experiment of SCHED2: its contenders run, and its figures of fragmentation and locality are those of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.papers.sched2 import contenders as names
from simulator.papers.sched2 import experiment as sched2
from simulator.papers.sched2 import measures
from simulator.reproducing.experiment import Kind, Setting, perform, policy
from simulator.results.fragmentation import Fragmentation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.sched2 import Sched2, generate
from simulator.traces.trace import Trace
from tests.unit.simulator.commands import run


def short(seed: int) -> Trace:
    return generate(Sched2(seed=seed, jobs=60, mean_gap_s=5.0))


def shortened(setting: Setting) -> Setting:
    return replace(setting, trace=short)


def test_every_contender_has_every_figure_of_the_paper() -> None:
    whole = sched2.experiment(quick=True)
    found = perform(
        replace(whole, settings=tuple(map(shortened, whole.settings))), (1000, 1001), lambda _share: None, processes=1
    )
    (setting,) = (each.name for each in whole.settings)
    assert {each.name for each in whole.contenders[setting]} >= {
        names.PAPERS, names.FEATURES, names.START, names.OURS, names.WIDEST, names.UNIFORM,
        *names.baselines(names.FIRST_TEN), *names.baselines(names.WHOLE_QUEUE), *names.controls(names.FIRST_TEN),
    }  # fmt: skip
    for each in whole.contenders[setting]:
        if each.kind is Kind.BOUND:
            continue
        for metric in {*measures.PERFORMANCE, *measures.BEHAVIOUR} - {"wait_ratio"}:
            assert len(found.values(setting, each.name, metric)) == 2, (each.name, metric)
        waits = found.values(
            setting, each.name, "wait_insensitive_s"
        )  # where none waits, there is no ratio to their wait
        assert len(found.values(setting, each.name, "wait_ratio")) == sum(wait > 0 for wait in waits)
    assert len(found.findings()) == len(whole.claims)
    assert sched2.pictures(found)


def longer(seed: int) -> Trace:
    return generate(Sched2(seed=seed, jobs=250, mean_gap_s=100.0))


@pytest.mark.parametrize("name", [names.PAPERS, names.FEATURES, names.START, names.OURS, names.WIDEST])
def test_agents_do_in_their_environment_what_their_policies_do(name: str) -> None:
    whole = sched2.experiment(quick=True)
    setting = replace(whole.settings[0], trace=longer)
    measured = whole.measures
    (agent,) = (each for each in whole.contenders[setting.name] if each.name == name)
    served = policy(name, Kind.OURS, measures=measured, record=True)
    assert agent.run(setting, 1000, None).figures == pytest.approx(served.run(setting, 1000, None).figures, rel=1e-6)


def test_every_mix_and_every_gap_has_claims() -> None:
    whole = sched2.experiment()
    assert {claim.setting for claim in whole.claims} == {setting.name for setting in whole.settings}
    assert len(whole.settings) == len(sched2.GAPS_S) + len(sched2.MIXES)
    shares = [
        [float((setting.trace(seed).num_gpus == 1).mean()) for seed in range(3)]
        for setting in whole.only("on one GPU").settings
    ]
    assert [sum(each) / 3 for each in shares] == pytest.approx([0.60, 0.75], abs=0.02)


def test_growth_of_fragmentation_is_that_between_the_halves_of_the_arrivals() -> None:
    result = run([(0, 1, 40), (0, 2, 30), (5, 1, 90), (60, 4, 10), (80, 2, 10)], "2x4", "sched2-fifo")
    assert result.spans is not None
    end = int(result.submit_ns.max())
    first, second = Fragmentation.of(result.spans, result.node_gpus, 0, end, 2).bins
    assert first > 0
    assert measures.fragmentation_growth(result) == pytest.approx(second / first - 1)


def test_three_of_six_models_are_sensitive() -> None:
    assert measures.sensitive(paper_profiles("sched2")) == {"alexnet", "transformer", "vgg16"}
