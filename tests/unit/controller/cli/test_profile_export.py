"""Export of measured profiles: a file that the simulator reads, and rows for its fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.admin.profile_messages import slowdown_rows
from controller.cli.profile_export import ExportError, export, racks_of
from controller.profiles.fit_rows import rows
from controller.profiles.store import ProfileStore
from protos.headway.v1 import admin_pb2
from simulator.runs.one import run
from simulator.runs.options import RunOptions
from simulator.slowdown.fitting.rows import read_rows
from simulator.slowdown.links import step_fit
from simulator.slowdown.neighbours import pair_table
from simulator.slowdown.placement import locality, scaling
from simulator.slowdown.profiles.files import load_profiles
from simulator.slowdown.profiles.papers import PAIRS
from tests.unit.controller.examples.reports import SIGNATURE, Agents, Training

T0 = 1_000_000 * 30.0
OTHER = "cd" * 32
NAME, SECOND = f"train-{SIGNATURE[:8]}", f"b-{OTHER[:8]}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


def training(job_id: int, nodes: tuple[str, ...], steps_per_s: float, **more: object) -> Training:
    return Training(job_id, nodes, steps_per_s, start_s=T0 - 10_000, **more)  # type: ignore[arg-type]


def profile(agents: Agents, store: ProfileStore, job: Training, at_s: float, wait_s: float) -> None:
    step = {"step_s": 0.1 + wait_s, "compute_s": 0.1, "comm_exposed_s": wait_s, "comm_hidden_s": 0.0}
    store.take([agents.arrival("n1", job.profile(at_s, step, {"all_reduce": 4e6}))])


def busy_days(store: ProfileStore) -> None:
    """Two models: alone in one rack and across two, at three sizes, and beside each other; profiled five times each."""
    agents, models = Agents(), [{"script": "train.py"}, {"script": "b.py", "signature": OTHER}]
    for which, model in enumerate(models):
        for at in range(5):
            start_s = T0 + 3000 * which + 90 * at
            near = training(100 * which + at, ("n1", "n2"), 4.0, **model)
            far = training(100 * which + at + 50, ("n1", "m1"), 2.0, **model)
            store.take(agents.watch([near], start_s, start_s + 30))
            store.take(agents.watch([far], start_s + 30, start_s + 60))
            profile(agents, store, near, start_s + 5, 0.05 * (1 + at))
        for at, gpus in enumerate((1, 4, 8)):
            start_s = T0 + 9000 + 900 * which + 30 * at
            sized = training(200 + 10 * which + at, ("n1",), 8.0 / gpus**0.2, gpus=gpus, ranks=gpus, **model)
            store.take(agents.watch([sized], start_s, start_s + 30))
    # Each alone makes 3 steps/s in the median over both localities.
    together = [training(301 + which, ("n1", "n2"), 1.5, **model) for which, model in enumerate(models)]
    store.take(agents.watch(together, T0 + 12_000, T0 + 12_120))
    store.compute_windows(T0 + 90_000)


def exported(store: ProfileStore, to: Path, folder: Path | None = None) -> dict[str, object]:
    """Through the messages, as the command has them."""
    found = admin_pb2.SlowdownRows()
    for piece in slowdown_rows(rows(store, racks=lambda node: node[0])):
        found.MergeFrom(admin_pb2.SlowdownRows.FromString(piece.SerializeToString()))
    return export(found, to, folder)


def test_the_file_has_what_was_measured(store: ProfileStore, tmp_path: Path) -> None:
    busy_days(store)
    done = exported(store, tmp_path / "here.json")
    found = load_profiles(tmp_path / "here.json")
    assert set(found.models) == {NAME, SECOND}
    for model in found.models.values():
        assert model.compute_s == pytest.approx(0.1, rel=0.05)
        assert model.bytes == pytest.approx(4e6, rel=0.05)
        assert model.locality is not None
        assert model.locality[3] / model.locality[2] == pytest.approx(0.5, rel=0.01)
        assert model.scaling is not None
    key, other = (name.replace("-", "") + ",2,2" for name in (NAME, SECOND))
    assert found.pairs == {(key, other): pytest.approx(0.5), (other, key): pytest.approx(0.5)}
    assert (done["models"], done["pairs"]) == (2, 2)


@pytest.mark.parametrize("model", ["pair-table", "locality", "max-min", "scaling"])
def test_headway_sim_runs_on_it(
    store: ProfileStore, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    busy_days(store)
    exported(store, tmp_path / "here.json")
    trace = tmp_path / "trace.csv"
    lines = [f"j{at},{at},2,100,{NAME if at % 2 else SECOND}" for at in range(6)]
    trace.write_text("\n".join(["job_id,submit_time_s,num_gpus,duration_s,model", *lines]) + "\n")
    run(RunOptions(trace=trace, cluster="2x4", slowdown=(model,), profiles=tmp_path / "here.json"), "fifo", None, True)
    assert json.loads(capsys.readouterr().out)["jobs"] == 6


def test_the_fits_run_on_the_rows(store: ProfileStore, tmp_path: Path) -> None:
    busy_days(store)
    folder = tmp_path / "rows"
    exported(store, tmp_path / "here.json", folder)
    table, _ = pair_table.fit(read_rows(folder / "pairs.csv", pair_table.PairRow))
    assert list(table.values()) == pytest.approx([0.5, 0.5])
    curves, _ = locality.fit(read_rows(folder / "locality.csv", locality.LocalityRow))
    assert set(curves) == {NAME, SECOND}
    steps, report = step_fit.fit(read_rows(folder / "steps.csv", step_fit.StepRow))
    assert steps[NAME].bytes == pytest.approx(4e6, rel=0.05)
    assert report.mean_error < 0.05
    laws, _ = scaling.fit(read_rows(folder / "scaling.csv", scaling.ScalingRow))
    assert set(laws) == {NAME, SECOND}


def test_one_profile_is_enough_and_what_was_not_measured_is_left_to_the_papers(
    store: ProfileStore, tmp_path: Path
) -> None:
    agents, job = Agents(), training(1, ("n1", "n2"), 4.0)
    profile(agents, store, job, T0 + 5, 0.05)
    store.take(agents.watch([job], T0, T0 + 30))
    store.compute_windows(T0 + 600)
    done = exported(store, tmp_path / "here.json")
    found = load_profiles(tmp_path / "here.json")
    assert found.models[NAME].compute_s == pytest.approx(0.1)
    assert found.models[NAME].bytes == pytest.approx(4e6)
    assert (found.models[NAME].locality, found.pairs) == (None, PAIRS)
    assert done["fits"]["pairs"].startswith("not fitted")  # type: ignore[index]


def test_a_model_that_ran_on_single_gpus_alone_has_the_bytes_of_the_others(store: ProfileStore, tmp_path: Path) -> None:
    busy_days(store)
    agents = Agents("later")
    small = training(900, ("n1",), 4.0, script="small.py", signature="ef" * 32)
    step = {"step_s": 0.3, "compute_s": 0.3, "comm_exposed_s": 0.0, "comm_hidden_s": 0.0}
    store.take([agents.arrival("n1", small.profile(T0 + 20_005, step, {}))])
    store.take(agents.watch([small], T0 + 20_000, T0 + 20_030))
    store.compute_windows(T0 + 90_000)
    exported(store, tmp_path / "here.json")
    found = load_profiles(tmp_path / "here.json").models["small-efefefef"]
    assert (found.compute_s, found.bytes) == (pytest.approx(0.3), pytest.approx(4e6))


def test_a_model_that_was_profiled_only_within_a_node_keeps_its_bytes(store: ProfileStore, tmp_path: Path) -> None:
    # Given a model whose ranks on one node send 2 GB, beside models from which bytes by rate can be fitted
    busy_days(store)
    agents = Agents("later")
    inside = training(900, ("n1",), 4.0, script="inside.py", signature="ef" * 32, gpus=4, ranks=4)
    step = {"step_s": 0.2, "compute_s": 0.15, "comm_exposed_s": 0.05, "comm_hidden_s": 0.05}
    store.take(agents.watch([inside], T0 + 20_000, T0 + 20_120))
    store.take([agents.arrival("n1", inside.profile(T0 + 20_005 + at, step, {"all_reduce": 2e9})) for at in range(12)])
    store.compute_windows(T0 + 90_000)
    # When the measurements are exported
    done = exported(store, tmp_path / "here.json")
    # Then it does not count as one that sends nothing
    found = load_profiles(tmp_path / "here.json").models
    inside_node = found["inside-efefefef"]
    assert not str(done["fits"]["steps"]).startswith("not fitted")  # type: ignore[index]
    assert (inside_node.compute_s, inside_node.overlap) == (pytest.approx(0.15), pytest.approx(0.5))
    assert inside_node.bytes == pytest.approx(2e9) and found[NAME].bytes == pytest.approx(4e6, rel=0.05)


def test_missing_measurements_and_unwritable_files_are_reported(store: ProfileStore, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no job was profiled"):
        exported(store, tmp_path / "here.json")
    busy_days(store)
    with pytest.raises(ExportError, match="cannot be written"):
        exported(store, tmp_path / "nowhere" / "here.json")


def test_racks_are_those_of_the_cluster_file(tmp_path: Path) -> None:
    assert racks_of(None) == {}
    with pytest.raises(ExportError):
        racks_of(tmp_path / "none.toml")
