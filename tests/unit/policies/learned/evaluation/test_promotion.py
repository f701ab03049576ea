"""Weights are promoted only if they are better on the history, and a promotion can be undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from policies.errors import TrainingError
from policies.learned.evaluation import evaluation, promotion
from policies.learned.evaluation.evaluation import EvaluationRequest
from policies.learned.evaluation.promotion import Promotion, promote, undo
from policies.learned.training.systems import SetupOverrides
from policies.learned.weights import weights
from policies.serving.cli.app import app

SYSTEM = "headway-rl"
ENCODER = "headway-rl/2"
_REQUEST = EvaluationRequest(policies=(), overrides=SetupOverrides(cluster="4x8"), settings=("jobs=24",))

_FIVE = EvaluationRequest(policies=(), overrides=SetupOverrides(cluster="4x8"), seeds=5)


def folder_of(path: Path, factor: float) -> Path:
    """The folder of a training whose weights are the shipped ones times this factor."""
    arrays, card = weights.load(weights.pretrained(), SYSTEM, system=SYSTEM, encoder=ENCODER)
    weights.save(path / "best", SYSTEM, {name: array * factor for name, array in arrays.items()}, card)
    return path


def replayed(candidate: Path, service: Path, seeds: int = 3) -> Promotion:
    """Promote on a history of a few jobs."""
    return promote(SYSTEM, candidate, service, replace(_REQUEST, seeds=seeds), lambda _: None)


def digest(folder: Path, of: str = "best") -> bytes:
    return (folder / of / f"{SYSTEM}.safetensors").read_bytes()


def test_better_weights_replace_those_in_service_and_the_replacement_can_be_undone(tmp_path: Path) -> None:
    # given weights in service that prefer what the candidate avoids
    service, candidate = folder_of(tmp_path / "service", -1.0), folder_of(tmp_path / "candidate", 1.0)
    worse = digest(service)
    # when the candidate is compared with them on the history
    found = replayed(candidate, service)
    # then it is promoted, because the whole interval is below zero
    change = found.evaluation.changes[found.candidate]
    assert change is not None and change.ci95 is not None and change.mean + change.ci95 < 0
    assert (found.promoted, found.why_not) == (True, "")
    assert digest(service) == digest(candidate)
    assert digest(service, "previous") == worse
    # and this can be undone, and the undoing too
    undo(service)
    assert digest(service) == worse
    undo(service)
    assert digest(service) == digest(candidate)


@pytest.mark.parametrize(
    ("factor", "why_not"), [(-1.0, "not below zero"), pytest.param(1.0, "not below zero", marks=pytest.mark.slow)]
)
def test_weights_that_are_not_better_change_nothing(tmp_path: Path, factor: float, why_not: str) -> None:
    service, candidate = folder_of(tmp_path / "service", 1.0), folder_of(tmp_path / "candidate", factor)
    before = digest(service)
    found = replayed(candidate, service)
    assert not found.promoted
    assert why_not in found.why_not
    assert digest(service) == before
    assert not (service / "previous").exists()


@pytest.mark.parametrize(("name", "other"), [("2026_11_28", "20261128"), ("0042", "42"), ("1e3", "1000.0")])
def test_the_weights_that_are_compared_are_those_that_are_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, other: str
) -> None:
    # given poor weights in a folder whose name is also a number, and better ones in the folder that Python would make of it
    monkeypatch.chdir(tmp_path)
    service, candidate = folder_of(Path("service"), 0.5), folder_of(Path(name), -1.0)
    folder_of(Path(other), 1.0)
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        evaluation, "find_backend", lambda *_: pytest.fail(f"not asked for a comparison of {sorted(made)}")
    )
    monkeypatch.setattr(evaluation, "load_policy", lambda *given: made.setdefault(given[1]["weights"], given))
    # when they are compared, then with nothing else
    with pytest.raises(pytest.fail.Exception):
        promote(SYSTEM, candidate, service, replace(_REQUEST, seeds=3), lambda _: None)
    assert set(made) == {"service", name}


@pytest.mark.parametrize(
    ("policy", "name", "options"),
    [
        (None, "rl-base", {}),
        ("rl-hybrid", "rl-hybrid", {}),
        ("rl-hybrid:greedy=one", "rl-hybrid", {"greedy": "one"}),
    ],
)
def test_weights_are_judged_by_the_policy_that_serves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str | None, name: str, options: dict[str, str]
) -> None:
    folders = [tmp_path / "service", tmp_path / "candidate"]
    for folder in folders:
        (folder / "best").mkdir(parents=True)
        (folder / "best" / "contention-rl.json").write_text("{}")
    made: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(evaluation, "find_backend", lambda *_: pytest.fail("not asked for a comparison"))
    monkeypatch.setattr(evaluation, "load_policy", lambda *given: made.append(given))
    with pytest.raises(pytest.fail.Exception):
        promote("contention-rl", folders[1], folders[0], _FIVE, lambda _: None, policy=policy)
    assert made == [(name, {**options, "weights": str(folder)}) for folder in folders]


@pytest.mark.parametrize("policy", ["fifo", "headway-rl:weights=mine", "rl-base"])
def test_a_policy_that_does_not_serve_the_weights_is_refused(tmp_path: Path, policy: str) -> None:
    service, candidate = folder_of(tmp_path / "service", -1.0), folder_of(tmp_path / "candidate", 1.0)
    command = ["promote", SYSTEM, str(candidate), "--over", str(service), "--policy", policy]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "give a policy that serves weights of headway-rl (headway-rl)" in result.output


def test_one_window_has_no_interval(tmp_path: Path) -> None:
    service, candidate = folder_of(tmp_path / "service", -1.0), folder_of(tmp_path / "candidate", 1.0)
    found = replayed(candidate, service, seeds=1)
    assert not found.promoted
    assert "no interval; give more history" in found.why_not


def test_folders_without_weights_are_refused(tmp_path: Path) -> None:
    service = folder_of(tmp_path / "service", 1.0)
    with pytest.raises(TrainingError, match=r"other has no weights of headway-rl"):
        replayed(tmp_path / "other", service)
    with pytest.raises(TrainingError, match="is in service already"):
        replayed(service, service)
    with pytest.raises(TrainingError, match="nothing to return to"):
        undo(service)


@pytest.mark.slow
def test_weights_that_have_changed_since_the_comparison_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, candidate = folder_of(tmp_path / "service", -1.0), folder_of(tmp_path / "candidate", 1.0)
    compare = promotion.compare

    def meanwhile(*values: Any, **named: Any) -> Promotion:
        found = compare(*values, **named)
        folder_of(service, 3.0)
        return found

    monkeypatch.setattr(promotion, "compare", meanwhile)
    with pytest.raises(TrainingError, match="compare again"):
        replayed(candidate, service)
    assert not (service / "previous").exists()


def test_a_promotion_that_was_interrupted_is_completed_by_the_next_command(tmp_path: Path) -> None:
    service = folder_of(tmp_path / "service", 1.0)
    before = digest(service)
    (service / "best").rename(service / promotion.COMING)
    with pytest.raises(TrainingError, match="nothing to return to"):
        undo(service)
    assert digest(service) == before
    with pytest.raises(TrainingError, match="no folder of weights"):
        undo(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_dl2_is_compared_as_it_is_served_so_that_jobs_start_with_their_minimum(tmp_path: Path) -> None:
    # given jobs that need four GPUs each, of which the environment's agent gives one after the other to all jobs
    rows = [f"{number},{60 * number},4,600,4,4,20,0" for number in range(100)]
    header = "job_id,submit_time_s,num_gpus,duration_s,min_gpus,max_gpus,epochs,num_ps"
    (tmp_path / "history.csv").write_text("\n".join([header, *rows]) + "\n")
    arrays, card = weights.load(weights.pretrained(), "dl2-all-reduce", system="dl2", encoder="dl2/1")
    for name in ("service", "candidate"):
        weights.save(tmp_path / name / "best", "dl2", arrays, card)
    request = EvaluationRequest(
        policies=(),
        overrides=SetupOverrides(traces=(str(tmp_path / "history.csv"),), cluster="2x4", slowdown=("locality",)),
        settings=("jobs=10",),
    )
    # when two equal weights are compared
    found = promote("dl2", tmp_path / "candidate", tmp_path / "service", request, lambda _: None)
    # then all jobs have run, and neither is better
    assert set(found.evaluation.unfinished.values()) == {0}
    assert "is +0.0% ± 0.0%, which is not below zero" in found.why_not


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["promote", SYSTEM, str(tmp_path)])
    assert done.exit_code == 1
    assert "give SYSTEM CANDIDATE --over FOLDER" in done.output
    service = folder_of(tmp_path / "service", 1.0)
    done = CliRunner().invoke(app, ["promote", SYSTEM, "--undo", "--over", str(service)])
    assert done.exit_code == 1
    assert "nothing to return to" in done.output
