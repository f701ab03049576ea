"""Stored profiles become the rows that the simulator's fits read, and the fits recover the values that were stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from controller.profiles import fit_rows, tables
from controller.profiles.fit_rows import Names, model_name, rows
from controller.profiles.store import ProfileStore
from controller.profiles.uplinks import links_of
from controller.profiles.windows import Neighbour, RunKey, RunShape, Throughput, Trained
from simulator.cluster.topology.slurm import parse_switches
from simulator.slowdown.links import step_fit
from simulator.slowdown.neighbours import pair_table
from simulator.slowdown.placement import locality, scaling
from tests.unit.controller.examples.reports import SIGNATURE, Agents, Training

T0 = 1_000_000 * 30.0
NAME = f"train-{SIGNATURE[:8]}"
KEY = NAME.replace("-", "")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


def training(job_id: int, nodes: tuple[str, ...], steps_per_s: float, **more: object) -> Training:
    return Training(job_id, nodes, steps_per_s, start_s=T0 - 10_000, **more)  # type: ignore[arg-type]


def test_names_have_no_commas_and_distinguish_models() -> None:
    assert model_name(Trained(1, "train.py", SIGNATURE)) == NAME
    assert model_name(Trained(2, "a,b c.py", "cd" * 32)) == "a_b_c-cdcdcdcd"
    assert model_name(Trained(1, "", SIGNATURE)) == f"unknown-{SIGNATURE[:8]}"


def test_batch_sizes_and_gpus_are_in_the_name_where_several_were_seen() -> None:
    small, large = Trained(1, "train.py", SIGNATURE, 32), Trained(1, "train.py", SIGNATURE, 64)
    here, there = RunShape(2, 1, "NVIDIA H100 PCIe"), RunShape(2, 1, "Tesla V100")
    assert Names([(small, here), (small, None)]).of(small, here) == NAME
    assert Names([(small, here), (large, here)]).of(small, here) == f"{NAME}-b32"
    assert Names([(small, here), (small, there)]).of(small, there) == f"{NAME}-Tesla_V100"
    assert Names([(small, here), (large, there)]).of(large, here) == f"{NAME}-b64-NVIDIA_H100_PCIe"


def test_the_pair_table_is_fitted_from_meetings_of_two(store: ProfileStore) -> None:
    # given a job alone at 6 steps/s, then at 3 beside another, which has 3.1 of its 6.2 there
    agents = Agents()
    store.take(
        agents.watch([training(1, ("n1", "n2"), 6.0), training(2, ("n3", "n4"), 6.2, script="b.py")], T0, T0 + 60)
    )
    together = [training(1, ("n1", "n2"), 3.0), training(2, ("n1", "n2"), 3.1, script="b.py", restart=1)]
    store.take(agents.watch(together, T0 + 60, T0 + 150))
    store.compute_windows(T0 + 600)
    found = rows(store).pairs
    assert len(found) == 6
    # when the simulator's table is fitted
    table, report = pair_table.fit(found)
    # then each has half of what it has alone
    other = f"b{SIGNATURE[:8]},2,2"
    assert table == {
        (f"{KEY},2,2", other): pytest.approx(0.5, rel=1e-6),
        (other, f"{KEY},2,2"): pytest.approx(0.5, rel=1e-6),
    }
    assert report.mean_error < 1e-6


def test_a_meeting_is_compared_with_the_speed_alone_of_its_time(
    store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a model that made 8 steps/s alone for long, and makes 4 since, of which it loses none beside another
    monkeypatch.setattr(fit_rows, "_NEAR", 5)
    agents = Agents()
    for begin_s, end_s, steps_per_s in ((0, 600, 8.0), (600, 900, 4.0)):
        store.take(agents.watch([training(1, ("n1",), steps_per_s)], T0 + begin_s, T0 + end_s))
    together = [training(1, ("n1",), 4.0), training(2, ("n1",), 3.0, script="b.py")]
    store.take(agents.watch(together, T0 + 900, T0 + 990))
    store.compute_windows(T0 + 9999)
    found = rows(store)
    assert [row.ratio for row in found.pairs] == pytest.approx([1.0] * 3, rel=1e-3)
    assert [row.throughput for row in found.scaling] == pytest.approx([4.0], rel=1e-3)


def test_a_job_is_compared_with_its_own_speed_of_that_time(store: ProfileStore) -> None:
    # given a job whose steps became twice as long a while ago, and another of its model that makes 8 steps/s
    agents = Agents()
    for begin_s, end_s, steps_per_s in ((0, 1200, 8.0), (1200, 1500, 4.0)):
        both = [training(1, ("n1",), steps_per_s), training(3, ("n3",), 8.0)]
        store.take(agents.watch(both, T0 + begin_s, T0 + end_s))
    # when it meets a job of another model
    together = [training(1, ("n1",), 4.0), training(2, ("n1",), 3.0, script="b.py")]
    store.take(agents.watch(together, T0 + 1500, T0 + 1590))
    store.compute_windows(T0 + 9999)
    # then it has lost nothing
    assert [row.ratio for row in rows(store).pairs] == pytest.approx([1.0] * 3, rel=1e-3)


def test_meetings_of_three_and_with_strangers_are_no_pairs(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([training(1, ("n1",), 6.0)], T0, T0 + 60))
    crowd = [training(job, ("n1",), 2.0) for job in (1, 2, 3)]
    store.take(agents.watch(crowd, T0 + 60, T0 + 120))
    store.note_present(T0 + 121, {"n1": [99]})
    store.take(agents.watch([training(1, ("n1",), 3.0)], T0 + 120, T0 + 150))
    store.compute_windows(T0 + 600)
    assert len(list(store.throughputs())) == 9
    assert rows(store).pairs == ()


def test_jobs_that_share_only_an_uplink_are_no_pair(tmp_path: Path) -> None:
    # given two jobs on the four nodes of two switches, each on both
    links = links_of(parse_switches("SwitchName=a Nodes=n1,n2\nSwitchName=b Nodes=n3,n4\nSwitchName=top Switches=a,b"))
    jobs = [training(1, ("n1", "n3"), 6.0), training(2, ("n2", "n4"), 6.2, script="b.py")]
    agents = Agents()
    with closing(ProfileStore(tmp_path / "tree.sqlite", links=links)) as store:
        for job, at_s in zip(jobs, (T0, T0 + 60), strict=True):
            store.take(agents.watch([job], at_s, at_s + 60))
        # when they run at the same time, and then on the same nodes
        store.take(agents.watch(jobs, T0 + 120, T0 + 180))
        (apart,) = {item.neighbours[0].shares_node for item in computed(store, T0 + 120)}
        pairs = rows(store).pairs
        store.take(agents.watch([jobs[0], replace(jobs[1], nodes=("n1", "n3"))], T0 + 180, T0 + 240))
        (together,) = {item.neighbours[0].shares_node for item in computed(store, T0 + 180)}
        # then they are neighbours, but only those on the same nodes are a pair
        assert (apart, together, pairs) == (False, True, ())
        assert len(rows(store).pairs) == 4


def computed(store: ProfileStore, since_s: float) -> list[Throughput]:
    """Compute the windows, and return those since then."""
    store.compute_windows(T0 + 9999)
    return list(store.throughputs(since_s))


@pytest.mark.parametrize(("nodes", "pairs"), [(("n1",), 1), (("n1", "n2"), 0)])
def test_neighbours_in_windows_of_earlier_versions_count_where_they_must_share_a_node(
    store: ProfileStore, nodes: tuple[str, ...], pairs: int
) -> None:
    trained, shape = Trained(1000, "train.py", SIGNATURE), RunShape(4, len(nodes))
    near = Neighbour(RunKey(2, 0), Trained(1000, "b.py", SIGNATURE), RunShape(4, 2), 3.0)
    alone = Throughput(T0, RunKey(1, 0), trained, shape, nodes, 100, 6.0, 0, None, ())
    with store._writing() as db:
        tables.insert_throughput(db, alone)
        tables.insert_throughput(db, replace(alone, start_s=T0 + 30, neighbours=(near,)))
    assert len(rows(store).pairs) == pairs


def test_locality_is_fitted_by_shape(store: ProfileStore) -> None:
    # given two GPUs on two nodes of a rack, and across racks, five times each
    agents = Agents()
    for at in range(5):
        near, far = (f"a{2 * at}", f"a{2 * at + 1}"), (f"b{at}", f"c{at}")
        jobs = [training(10 + at, near, 4.0), training(20 + at, far, 1.0)]
        store.take(agents.watch(jobs, T0 + 100 * at, T0 + 100 * at + 60))
    store.compute_windows(T0 + 9999)
    found = rows(store, racks=lambda node: node[0]).locality
    assert sorted({(row.model, row.setting, row.tier) for row in found}) == [(NAME, "2 GPUs", 2), (NAME, "2 GPUs", 3)]
    curves, report = locality.fit(found)
    assert curves[NAME] == pytest.approx((1.0, 1.0, 1.0, 0.25))
    assert report.mean_error < 1e-6


def test_sockets_come_from_the_nodes_own_topology(store: ProfileStore) -> None:
    agents = Agents()
    for at, (job, numa) in enumerate([(1, ((0, 0), (1, 0))), (2, ((0, 0), (1, 1))), (3, ())]):
        for arrival in agents.watch([training(job, (f"n{at}",), 4.0, gpus=2, ranks=2)], T0, T0 + 60):
            store.take([type(arrival)(arrival.node, arrival.run_id, arrival.report, arrival.time_s, 0.0, numa)])
    store.compute_windows(T0 + 600)
    assert sorted((item.run.job_id, item.sockets) for item in store.throughputs(T0 + 30)) == [
        (1, 1),
        (2, 2),
        (3, None),
    ]
    assert [row.tier for row in rows(store).locality] == [0, 1]


def test_bytes_of_a_step_are_fitted_from_profiles(store: ProfileStore) -> None:
    # given a model that computes 10 ms and reduces 4 MB, on two nodes, profiled at four shares of the link, and on one node
    agents = Agents()
    for at, gbs in enumerate((0.025, 0.0125, 0.05, 0.1, None, None)):
        job = training(10 + at, ("n1",) if gbs is None else ("n1", "n2"), 1.0)
        wait_s = 0.0 if gbs is None else 4e6 / (gbs * 1e9)
        step = {"step_s": 0.01 + wait_s, "compute_s": 0.01, "comm_exposed_s": wait_s, "comm_hidden_s": 0.0}
        store.take([agents.arrival("n1", job.profile(T0 + 100 * at, step, {"all_reduce": 4e6}))])
        store.take(agents.watch([job], T0 + 90 * at, T0 + 90 * at + 60))
    store.compute_windows(T0 + 9999)
    found = rows(store).steps
    assert len(found) == 6
    fitted, report = step_fit.fit(found)
    assert fitted[NAME].compute_s == pytest.approx(0.01, rel=0.01)
    assert fitted[NAME].bytes == pytest.approx(4e6, rel=0.01)
    assert report.mean_error < 0.01


def profiled(
    store: ProfileStore, job_id: int, nodes: tuple[str, ...], wait_s: float, kinds: dict[str, float], **more: object
) -> None:
    """Store a profile and a window of a job that computes for 0.1 s a step."""
    agents, job, at_s = Agents(f"run {job_id}"), training(job_id, nodes, 4.0, **more), T0 + 100 * job_id
    step = {"step_s": 0.1 + wait_s, "compute_s": 0.1, "comm_exposed_s": wait_s, "comm_hidden_s": 0.05 if kinds else 0.0}
    store.take([agents.arrival(nodes[0], job.profile(at_s, step, kinds))])
    store.take(agents.watch([job], at_s - 10, at_s + 50))
    store.compute_windows(T0 + 99_999)


def test_tries_on_one_gpu_hide_no_communication_of_a_model(store: ProfileStore) -> None:
    # given a job on two nodes that sends 1 GB a step, half of the shorter part hidden, and one within a node that sends 2 GB
    profiled(store, 1, ("n1", "n2"), 0.2, {"all_reduce": 1e9})
    profiled(store, 2, ("n1",), 0.05, {"all_reduce": 2e9}, gpus=2, ranks=2)
    # when it is tried on one GPU, more often than that
    for job_id in range(3, 9):
        profiled(store, job_id, ("n1",), 0.0, {})
    # then the model sends what it sends between nodes
    (found,) = rows(store).models
    assert (found.model, found.bytes, found.overlap) == (NAME, 1e9, pytest.approx(0.5))
    assert found.compute_s == pytest.approx(0.1)


def test_communication_within_a_node_counts_where_there_is_no_other(store: ProfileStore) -> None:
    profiled(store, 2, ("n1",), 0.05, {"all_reduce": 2e9}, gpus=2, ranks=2)
    profiled(store, 3, ("n1",), 0.0, {})
    (found,) = rows(store).models
    assert (found.bytes, found.overlap) == (2e9, pytest.approx(0.5))


def test_a_model_needs_of_the_network_what_its_groups_send_between_nodes(store: ProfileStore) -> None:
    # given a step of 0.1 s of computing and 0.2 s of communication: 8 GB for 0.15 s within the node, and 1 GB between nodes
    agents, job = Agents(), training(1, ("n1", "n2"), 4.0)
    step = {"step_s": 0.3, "compute_s": 0.1, "comm_exposed_s": 0.2, "comm_hidden_s": 0.05, "local_exposed_s": 0.15}
    store.take([agents.arrival("n1", job.profile(T0, step, {"all_reduce": 9e9}, {"all_reduce": 1e9}))])
    store.take(agents.watch([job], T0 - 10, T0 + 50))
    store.compute_windows(T0 + 99_999)
    # then the model sends 1 GB, all else takes 0.25 s on any network, and the rate of its links is that of the 1 GB
    found = rows(store)
    (model,) = found.models
    assert (model.bytes, model.compute_s, model.overlap) == (1e9, pytest.approx(0.25), pytest.approx(0.5))
    (row,) = found.steps
    assert row.gbs == pytest.approx(1.0 / 0.1)


def test_the_bytes_of_a_model_that_ran_on_single_gpus_alone_are_not_known(store: ProfileStore) -> None:
    profiled(store, 3, ("n1",), 0.0, {})
    (found,) = rows(store).models
    assert found.compute_s == pytest.approx(0.1)
    assert isnan(found.bytes) and isnan(found.overlap)


def test_scaling_is_fitted_by_size(store: ProfileStore) -> None:
    agents = Agents()
    sigma, kappa = 0.05, 0.001
    for gpus in range(1, 9):
        per_gpu = scaling.speedup(gpus, sigma, kappa) / gpus
        store.take(agents.watch([training(gpus, (f"n{gpus}",), 4.0 * per_gpu, gpus=gpus, ranks=gpus)], T0, T0 + 60))
    store.compute_windows(T0 + 600)
    curves, _ = scaling.fit(rows(store).scaling)
    assert curves[NAME] == (pytest.approx(sigma, rel=0.01), pytest.approx(kappa, rel=0.05))


def test_unknown_models_and_old_rows_are_left_out(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([training(1, ("n1", "n2"), 6.0, signature="")], T0, T0 + 60))
    store.take(agents.watch([training(2, ("n3", "n4"), 6.0)], T0, T0 + 60))
    store.compute_windows(T0 + 600)
    assert {row.model for row in rows(store).locality} == {NAME}
    assert rows(store, since_s=T0 + 600) == type(rows(store))((), (), (), ())
