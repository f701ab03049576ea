"""States that policies read have the agents' measurements of models and nodes, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.contention import measurement as measuring
from controller.contention.measurement import Measurement
from controller.observe.knowledge import Knowledge
from controller.observe.model_profiles import KnownModels
from controller.observe.observer import Observer
from controller.profiles.current import NO_CONTENTION, Contention, ContentionByRun
from controller.profiles.racks import Racks
from controller.profiles.reader import ProfileReader
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey
from controller.slurm.model.job import SlurmJob
from controller.state.ledger import Ledger
from policies.heuristics.contention_greedy import ContentionGreedy
from policies.learned.sched2.encoder import Encoder, Encoding
from policies.learned.sched2.state.placements import NUM_PLACEMENTS
from policies.learned.sched2.state.state_columns import StateColumns
from policies.model import ClusterState
from policies.serving.runtime.tasks.single_thread import Worker
from policies.speeds.contention_model import ContentionModel
from policies.speeds.job_profiles import StepModels
from policies.wire.messages import parse_state, serialize_state, state_digest
from tests.unit.controller.examples.build import NOW_S, job, request, running, snapshot
from tests.unit.controller.examples.reports import SIGNATURE, Agents, Training

T0 = 1_000_000 * 30.0
NAME, OTHER = f"train-{SIGNATURE[:8]}", f"b-{SIGNATURE[:8]}"
STEP = {"step_s": 0.5, "compute_s": 0.1, "comm_exposed_s": 0.4, "comm_hidden_s": 0.0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    """A job of `train.py` on two nodes, profiled; it met one of `b.py`, which was not profiled. One node tells of its NIC."""
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        agents = Agents()
        mine = Training(1, ("n1", "n2"), 6.0, start_s=T0 - 10_000)
        elsewhere = Training(2, ("n3", "n4"), 6.0, start_s=T0 - 10_000, script="b.py")
        store.take([agents.arrival("n1", mine.profile(T0, STEP, {"all_reduce": 4e9}))])
        store.take(agents.watch([mine, elsewhere], T0, T0 + 60))
        together = [
            Training(1, ("n1", "n2"), 3.0, start_s=T0 - 10_000),
            Training(2, ("n1", "n2"), 4.5, start_s=T0 - 10_000, script="b.py", restart=1),
        ]
        store.take(agents.watch(together, T0 + 60, T0 + 150))
        store.note_node("n1", 10_000_000_000)
        store.note_node("n2", None)
        store.compute_windows(T0 + 600)
        yield store


def measured(store: ProfileStore, job_id: int) -> ContentionByRun:
    """The newest window of that job."""
    window = store.throughputs_of(job_id, 1)[0]
    return {RunKey(job_id, 0): Contention(window, None)}


def observer_of(models: KnownModels) -> Observer:
    knowledge = Knowledge()
    knowledge.set_measured(NO_CONTENTION, models)
    return Observer(knowledge)


def seen(observer: Observer, known: ContentionByRun, *waiting: str) -> ClusterState:
    runs = running("1", on={"n1": 4, "n2": 4}, raw_id=1, name="mine")
    shot = snapshot(runs, *(job(str(10 + at), name=name) for at, name in enumerate(waiting)))
    return observer.observe(shot, Ledger(), frozenset({"dl"}), known).state


def test_before_the_first_measurement_states_have_no_profiles(store: ProfileStore) -> None:
    state = seen(Observer(), measured(store, 1), "mine")
    assert state.profiles is None and state.nodes.nic_gbyte_s is None


def test_running_jobs_have_what_agents_measured_and_waiting_ones_that_of_their_name(store: ProfileStore) -> None:
    observer = observer_of(KnownModels.of(store, 0.0))
    state = seen(observer, measured(store, 1), "mine", "never seen")
    profiles = state.profiles
    assert profiles is not None and profiles.overlap is not None and profiles.neighbour_loss is not None
    assert profiles.models == (NAME,)
    by_id = dict(zip(state.jobs.ids, profiles.of_job.tolist(), strict=True))
    assert by_id == {"1": 0, "10": 0, "11": -1}
    assert profiles.compute_s.tolist() == [pytest.approx(0.1)]
    assert profiles.bytes_per_step.tolist() == [pytest.approx(4e9)]
    assert profiles.overlap.tolist() == [0.0]
    assert profiles.neighbour_loss.tolist() == [pytest.approx(0.5)]
    assert profiles.ring is None and np.isnan(profiles.locality).all()
    assert profiles.pairs is not None
    mine, other = (f"{name.replace('-', '')},2,2" for name in (NAME, OTHER))
    assert profiles.pairs.table() == {(mine, other): pytest.approx(0.5), (other, mine): pytest.approx(0.75)}
    # and a job that was seen once is known while it is not measured
    later = seen(observer, {}, "mine")
    assert later.profiles is not None and later.profiles.of_job.tolist() == [0, 0]


def models_in(observer: Observer) -> Callable[..., dict[str, int]]:
    """Return a function of contention and jobs that returns each job's row in the profiles, -1 without one."""

    def models(known: ContentionByRun, *jobs: SlurmJob) -> dict[str, int]:
        state = observer.observe(snapshot(*jobs), Ledger(), frozenset({"dl"}), known).state
        assert state.profiles is not None
        return dict(zip(state.jobs.ids, state.profiles.of_job.tolist(), strict=True))

    return models


def test_a_job_keeps_its_model_while_another_one_of_its_name_is_measured(store: ProfileStore) -> None:
    # Given two running jobs of one name that train different models, of which only the first one's was profiled
    mine, other = (running(str(at), on={f"n{at}": 4}, raw_id=at, name="train") for at in (1, 2))
    windows = {RunKey(at, 0): Contention(store.throughputs_of(at, 1)[0], None) for at in (1, 2)}
    models = models_in(observer_of(KnownModels.of(store, 0.0)))
    assert models(windows, mine, other) == {"1": 0, "2": -1}
    # When a neighbour comes to the first one, so that it has no whole window for a while
    later = {RunKey(2, 0): windows[RunKey(2, 0)]}
    # Then it keeps its model, also after a requeue; a job that was never measured has the one that was reported last
    assert models(later, mine, other) == {"1": 0, "2": -1}
    again = job("1", raw_id=1, name="train", restarts=1)
    assert models(later, again, other, job("3", name="train", raw_id=3)) == {"1": 0, "2": -1, "3": -1}


@pytest.mark.parametrize(
    "hidden",
    [
        {"submit": int(NOW_S)},
        {"reason": "job_requeued_in_held_state", "admin_comment": ""},
    ],
    ids=["requeued a second ago", "requeued and held by Slurm"],
)
def test_a_job_keeps_its_model_while_policies_do_not_see_it(store: ProfileStore, hidden: dict[str, Any]) -> None:
    # Given a measured job, and another one of its name that trains a model which was not profiled
    mine, other = (running(str(at), on={f"n{at}": 4}, raw_id=at, name="train") for at in (1, 2))
    windows = {RunKey(at, 0): Contention(store.throughputs_of(at, 1)[0], None) for at in (1, 2)}
    models = models_in(observer_of(KnownModels.of(store, 0.0)))
    assert models(windows, mine, other) == {"1": 0, "2": -1}
    # When it is requeued, and is no job for policies in some snapshots
    later = {RunKey(2, 0): windows[RunKey(2, 0)]}
    again: dict[str, Any] = {"raw_id": 1, "name": "train", "restarts": 1}
    for _ in range(2):
        assert models(later, job("1", **again, **hidden), other) == {"2": -1}
    # Then it has its own model as soon as policies see it, until Slurm has forgotten it
    assert models(later, job("1", **again), other) == {"1": 0, "2": -1}
    models(later, other)
    assert models(later, job("1", **again), other) == {"1": -1, "2": -1}


def test_speeds_of_nics_are_those_that_agents_report(store: ProfileStore) -> None:
    observer = observer_of(KnownModels.of(store, 0.0))
    nodes = seen(observer, {}).nodes
    assert nodes.nic_gbyte_s is not None and nodes.uplink_gbyte_s is None
    shown = dict(zip(nodes.names, nodes.nic_gbyte_s.tolist(), strict=True))
    assert shown["n1"] == 1.25 and all(math.isnan(speed) for name, speed in shown.items() if name != "n1")


def test_a_policy_server_predicts_by_it(store: ProfileStore) -> None:
    observer = observer_of(KnownModels.of(store, 0.0))
    state = seen(observer, measured(store, 1), "mine", "never seen")
    served = parse_state(serialize_state(state))
    assert state_digest(served) == state_digest(state)
    model = ContentionModel(served)
    # 4 GB over a NIC of 1.25 GB/s, where the step computes for 0.1 s and is ideal on one node
    assert model.by_links and model.speed(0) == pytest.approx(0.1 / (0.1 + 4 / 1.25))
    assert [model.is_typical(row) for row in range(3)] == [False, False, True]
    assert set(ContentionGreedy().decide(served).allocation) == {0, 1, 2}


def test_a_model_that_was_tried_on_one_gpu_sends_as_much_as_other_models(store: ProfileStore) -> None:
    # Given a model of which only a run on one GPU was profiled, beside one that sends 4 GB
    agents, alone = Agents("later"), Training(3, ("n5",), 6.0, start_s=T0 - 10_000, script="b.py")
    step = {"step_s": 0.2, "compute_s": 0.2, "comm_exposed_s": 0.0, "comm_hidden_s": 0.0}
    store.take(agents.watch([alone], T0 + 150, T0 + 210))
    store.take([agents.arrival("n5", alone.profile(T0 + 200, step, {}))])
    store.compute_windows(T0 + 600)
    # When a job of that model runs on two nodes
    its = {RunKey(1, 0): Contention(store.throughputs_of(3, 1)[0], None)}
    state = seen(observer_of(KnownModels.of(store, 0.0)), its)
    # Then it does not count as one that sends nothing
    models = StepModels(state)
    assert models.of(0).compute_s == pytest.approx(0.2) and models.of(0).bytes == pytest.approx(4e9)
    assert models.unmeasured == {0}


def test_a_profile_of_a_run_that_ended_before_its_first_window_hides_no_model(store: ProfileStore) -> None:
    # Given a try of the model with another batch size, which ran out of memory soon after its profile
    agents, mine = Agents("later"), Training(4, ("n5",), 6.0, start_s=T0 - 10_000, batch_size=64)
    usual = Training(1, ("n1", "n2"), 6.0, start_s=T0 - 10_000, batch_size=32, restart=5)
    store.take(agents.watch([usual], T0 + 150, T0 + 210))
    store.take([agents.arrival("n1", usual.profile(T0 + 160, STEP, {"all_reduce": 4e9}))])
    store.take([agents.arrival("n5", mine.profile(T0 + 200, STEP, {"all_reduce": 4e9}))])
    store.compute_windows(T0 + 600)
    # When policies look at a job with the usual batch size
    known = KnownModels.of(store, 0.0)
    window = store.throughputs_of(1, 1)[0]
    assert window.trained.batch_size == 32
    profiles = known.profiles([(window.trained, window.shape)])
    # Then its profile is found, and the models are not read again for it
    assert profiles.models[profiles.of_job[0]] == f"{NAME}-b32"
    assert known.has(window)
    assert f"{NAME}-b32" in {model for model, _, _ in known.placed}


def test_an_empty_store_has_no_profiles(tmp_path: Path) -> None:
    with closing(ProfileStore(tmp_path / "empty.sqlite")) as empty:
        observer = observer_of(KnownModels.of(empty, 0.0))
        state = seen(observer, {}, "mine")
    assert state.profiles is None and state.nodes.nic_gbyte_s is None


async def test_a_model_that_comes_up_is_known_soon_without_looking_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a controller that has looked at models once
    clock = SimpleNamespace(time=lambda: T0 + 820, monotonic=lambda: now_s)
    monkeypatch.setattr(measuring, "time", clock)
    now_s, looks = 1000.0, 0
    one_look = KnownModels.of

    def counted(reader: ProfileReader, since_s: float, racks: Racks) -> KnownModels:
        nonlocal looks
        looks += 1
        return one_look(reader, since_s, racks)

    monkeypatch.setattr(KnownModels, "of", counted)
    path = tmp_path / "of-its-own.sqlite"
    agents, watched = Agents(), SimpleNamespace(nodes={}, reports=0, refused={})
    seen = Measurement(watched, path, 30.0)
    worker = Worker("test")

    async def look(*training: Training) -> tuple[str, ...]:
        nonlocal now_s
        jobs = [running(str(job.job_id), on=dict.fromkeys(job.nodes, 4), raw_id=job.job_id) for job in training]
        seen._seen = None
        await seen.update(worker, reader, snapshot(*jobs, nodes=5))
        assert seen.models is not None
        return seen.models.models

    with closing(ProfileStore(path)) as store, closing(ProfileReader.open(path)) as reader:
        mine = Training(7, ("n1", "n2"), 6.0, start_s=T0 - 10_000)
        late = Training(8, ("n3", "n4"), 6.0, start_s=T0 - 10_000, script="late.py")
        store.take(agents.watch([mine, late], T0 + 690, T0 + 820))
        store.take([agents.arrival("n1", mine.profile(T0 + 815, STEP, {"all_reduce": 1e9}))])
        store.compute_windows(T0 + 1300)
        assert await look(mine) == (NAME,)
        # When a job is profiled whose model was not trained before
        store.take([agents.arrival("n3", late.profile(T0 + 815, STEP, {"all_reduce": 1e9}))])
        assert await look(mine, late) == (NAME,) and looks == 1
        now_s += 5 * 30.0
        # Then it is known five windows later
        assert f"late-{SIGNATURE[:8]}" in await look(mine, late) and looks == 2
        # and the store is not read again while all are known
        now_s += 5 * 30.0
        await look(mine, late)
        assert looks == 2
        # and when a known model runs at another locality, it is read again
        apart = Training(9, ("n5",), 12.0, start_s=T0 - 10_000, gpus=2, ranks=2)
        store.take(agents.watch([apart], T0 + 690, T0 + 820))
        store.compute_windows(T0 + 1300)
        assert await look(mine, late) and looks == 2
        now_s += 5 * 30.0
        await look(apart)
        assert looks == 3
        assert seen.models is not None and seen.models.localities == {NAME: pytest.approx((1.0, 1.0, 0.5, 0.5))}
        worker.end()


@pytest.fixture
def placed(tmp_path: Path) -> Iterator[ProfileStore]:
    """One model on two GPUs, profiled: on one node, on two nodes of a rack, and in two racks; and on four GPUs of one node."""
    with closing(ProfileStore(tmp_path / "placed.sqlite")) as store:
        agents = Agents()
        jobs = [
            Training(1, ("a1",), 8.0, start_s=T0 - 10_000, gpus=2, ranks=2),
            Training(2, ("a2", "a3"), 4.0, start_s=T0 - 10_000),
            Training(3, ("a4", "b1"), 2.0, start_s=T0 - 10_000),
            Training(4, ("b2",), 1.0, start_s=T0 - 10_000, gpus=4, ranks=4),
        ]
        store.take([agents.arrival("a2", jobs[1].profile(T0, STEP, {"all_reduce": 4e9}))])
        store.take(agents.watch(jobs, T0, T0 + 60))
        store.compute_windows(T0 + 600)
        yield store


def test_policies_see_the_speed_at_each_locality_at_which_a_model_was_measured(placed: ProfileStore) -> None:
    racks = Racks(leaf={"a1": "a", "a2": "a", "a3": "a", "a4": "a", "b1": "b", "b2": "b"})
    profiles = KnownModels.of(placed, 0.0, racks).profiles([None])
    assert profiles.models == (NAME,)
    assert profiles.locality.tolist() == [pytest.approx((1.0, 1.0, 0.5, 0.25))]
    # Without racks, the two placements on two nodes are of one tier: their mean (of logarithms) counts
    assert KnownModels.of(placed, 0.0).profiles([]).locality.tolist() == [pytest.approx((1.0, 1.0, 8**-0.5, 8**-0.5))]


def test_a_waiting_job_of_a_profiled_model_has_its_times_under_the_four_placements_of_sched2(
    placed: ProfileStore,
) -> None:
    # Given two racks of two nodes of four GPUs, and a job of that model on four GPUs that takes an hour with the best locality
    racks = Racks(leaf={"n1": "a", "n2": "a", "n3": "b", "n4": "b"})
    known = KnownModels.of(placed, 0.0, Racks(leaf={"a1": "a", "a2": "a", "a3": "a", "a4": "a", "b1": "b"}))
    knowledge = Knowledge()
    knowledge.set_topology(racks)
    knowledge.set_measured(NO_CONTENTION, known)
    observer = Observer(knowledge)
    measured_run = {RunKey(1, 0): Contention(placed.throughputs_of(1, 1)[0], None)}
    runs = running("1", on={"n1": 1}, raw_id=1, name="mine")
    waits = job("10", name="mine", time_limit_s=3600, request=request(gpus_per_job=4))
    state = observer.observe(snapshot(runs, waits), Ledger(), frozenset({"dl"}), measured_run).state
    # When SCHED2's encoder looks at it
    view = Encoder(Encoding(num_nodes=4, gpus_per_node=8, candidates=4)).observe(state)
    # Then it shows the times on one node, on two of a rack, and on three and four of both racks
    (row,) = view.candidates
    assert state.jobs.ids[row] == "10"
    assert StateColumns(4, 8, 4).split(view.array())[1][0, :NUM_PLACEMENTS].tolist() == [
        pytest.approx(hours * view.state.remaining_s[row] / 3600) for hours in (1.0, 2.0, 4.0, 4.0)
    ]
