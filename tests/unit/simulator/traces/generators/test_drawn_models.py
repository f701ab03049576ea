"""Models that are drawn for jobs that name none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import SettingError
from simulator.runs.one import result_of
from simulator.runs.options import RunOptions
from simulator.traces.generators.contention_rl import MIXES, MODELS
from simulator.traces.generators.drawn_models import with_models
from simulator.traces.trace import Trace

COUNT = 3000


def unnamed(count: int = COUNT) -> Trace:
    names = [f"{7_000_000 + row}" for row in range(count)]
    return Trace.of("log", names, [0] * count, [1] * count, [1] * count)


@pytest.mark.parametrize("mix", MIXES)
def test_the_shares_are_those_of_the_mix(mix: str) -> None:
    found = Counter(with_models(unnamed(), mix, 0).model)
    total = sum(MIXES[mix])
    for model, weight in zip(MODELS, MIXES[mix], strict=True):
        expected = COUNT * weight / total
        assert abs(found[model] - expected) < 4 * np.sqrt(expected)


def test_a_job_has_the_same_model_in_every_part_of_a_trace_and_another_one_with_another_seed() -> None:
    whole = with_models(unnamed(), "normal", 0)
    part = with_models(unnamed().take(np.arange(1000, 1200)), "normal", 0)
    assert part.model == whole.model[1000:1200]
    assert with_models(unnamed(), "normal", 1).model != whole.model


def test_jobs_that_name_a_model_keep_it() -> None:
    trace = Trace.of("log", ["a", "b"], [0, 0], [1, 1], [1, 1], model=["vgg16", ""])
    first, second = with_models(trace, "heavy", 0).model
    assert first == "vgg16"
    assert second in MODELS


def test_an_unknown_mix_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingError, match="--models 'heaviest': give one of normal, heavy, medium, low"):
        with_models(unnamed(1), "heaviest", 0)


def test_models_of_the_mix_that_have_no_profile_are_named(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(
        "format = 1\n[models.MoE]\ncompute_s = 0.1\nbytes = 1e9\n[models.vgg16]\ncompute_s = 0.2\nbytes = 5e8\n"
    )
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_time_s,num_gpus,duration_s\na,0,1,900\n")
    options = RunOptions(trace=log, cluster="1x8", slowdown=("max-min",), models="normal", profiles=file)
    with pytest.raises(SettingError, match=r"no profile of GraphSage, .*FSDP") as error:
        result_of(options, "fifo-skip")
    assert "MoE" not in str(error.value)


@pytest.mark.parametrize("slowdown", ["link-sharing", "max-min"])
def test_in_a_run_of_drawn_models_a_network_ten_times_slower_slows_jobs_down_more(
    tmp_path: Path, slowdown: str
) -> None:
    # Given jobs without models, pairs of which have to share the NICs of three nodes
    log = tmp_path / "log.csv"
    rows = [f"j{row},{1000 * (row // 2)},12,900" for row in range(40)]
    log.write_text("\n".join(["job_id,submit_time_s,num_gpus,duration_s", *rows]) + "\n")
    lost = []
    for gbs in (12.5, 1.25):
        cluster = tmp_path / f"{gbs}.toml"
        cluster.write_text(f"[[nodes]]\ncount = 3\ngpus = 8\n[network]\nkind = 'flat'\nnic_gbs = {gbs}\n")
        options = RunOptions(trace=log, cluster=str(cluster), slowdown=(slowdown,), models="normal")
        # When they run
        result = result_of(options, "fifo-skip")
        # Then all share a link, whatever its speed
        assert result.shared_links is not None and result.shared_links.mean() > 0.9
        assert len(set(result.model)) == 6
        lost.append((result.service_ns / result.duration_ns).mean() - 1)
    # And they lose more where it is slow
    assert lost[1] > 1.2 * lost[0] > 0
