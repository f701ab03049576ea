"""A change of a waiting job by its user counts, and one by Headway never counts as its user's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.state.journal import Journal
from controller.state.ledger import Ledger, PinRecord
from controller.state.preemption import RelocationConstraint
from controller.state.user_changes import (
    counts_differently,
    note_change_after_pin,
    note_change_of_restored,
    note_change_since,
    request_of_a_changed_job,
    shows_other_nodes,
)
from tests.unit.controller.examples.build import job, request, snapshot
from tests.unit.controller.worlds.world import World

KEY = job("1").key
EACH = request(gpus_per_node=8, min_nodes=1, max_nodes=2)
TOTAL = request(gpus_per_job=8, min_nodes=1, max_nodes=4, required_nodes=())
ON_ONE = replace(EACH, max_nodes=1, required_nodes=("n1",))
ON_TWO = request(gpus_per_node=4, min_nodes=2, max_nodes=2, required_nodes=("n1", "n2"))
BY_TASK = request(gpus_per_task=2, num_tasks=4)


def ledger_of(original: ResourceRequest, *gpus: int, size: int | None = None, masks: tuple[int, ...] = ()) -> Ledger:
    """Return a ledger with this request, a pin with so many GPUs on each node, and the number of GPUs after a resize."""
    ledger = Ledger()
    ledger.originals[KEY] = original
    if gpus:
        ledger.pins[KEY] = PinRecord(("n1", "n2")[: len(gpus)], gpus, 0, 100.0, "fifo", "", gpu_masks=masks)
    if size is not None:
        ledger.set_constraint(KEY, RelocationConstraint(avoid=frozenset({"n3"}), gpus=size))
    return ledger


@pytest.mark.parametrize(
    ("original", "gpus", "shown", "newest"),
    [
        (EACH, (8,), replace(ON_ONE, gpus_per_node=2), replace(EACH, gpus_per_node=2)),
        (
            TOTAL,
            (4, 4),
            replace(ON_TWO, gpus_per_node=2),
            replace(ON_TWO, gpus_per_node=2, required_nodes=()),
        ),
        (TOTAL, (4, 4), replace(ON_TWO, gpus_per_job=4, gpus_fixed=True), replace(TOTAL, gpus_per_job=4)),
        (
            TOTAL,
            (5, 3),
            replace(TOTAL, gpus_per_job=6, required_nodes=("n1", "n2")),
            replace(TOTAL, gpus_per_job=6),
        ),
    ],
)
def test_other_gpus_on_the_nodes_of_the_pin_are_the_users(
    original: ResourceRequest, gpus: tuple[int, ...], shown: ResourceRequest, newest: ResourceRequest
) -> None:
    ledger = ledger_of(original, *gpus)
    assert note_change_after_pin(job("1", request=shown), ledger)
    assert ledger.originals[KEY] == newest
    assert not note_change_after_pin(job("1", request=shown), ledger)


@pytest.mark.parametrize(
    ("ledger", "shown"),
    [
        (ledger_of(EACH, 8), ON_ONE),
        (ledger_of(EACH, 8), replace(ON_ONE, required_nodes=(), gpus_per_node=2)),  # the pin has not arrived
        (ledger_of(EACH, 8), replace(ON_ONE, num_tasks=3, num_cpus=9, max_nodes=0)),  # as Slurm calculates it
        (ledger_of(TOTAL, 4, 4), ON_TWO),
        (ledger_of(TOTAL, 8), replace(TOTAL, required_nodes=("n1",))),
        (ledger_of(TOTAL, 4, 4), replace(ON_TWO, gpus_per_job=8, gpus_fixed=True)),
        (ledger_of(TOTAL, 5, 3), replace(TOTAL, required_nodes=("n1", "n2"))),
        (ledger_of(EACH, 4, size=4), replace(ON_ONE, gpus_per_node=4)),  # resized by Headway
        (ledger_of(EACH, 8, masks=(255,)), replace(ON_ONE, gpus_per_node=2, gpus_fixed=True)),
        (ledger_of(BY_TASK, 8), replace(BY_TASK, num_tasks=5, required_nodes=("n1",))),
        (ledger_of(EACH), replace(ON_ONE, gpus_per_node=2)),
    ],
)
def test_a_pin_by_headway_is_not_the_users(ledger: Ledger, shown: ResourceRequest) -> None:
    before = dict(ledger.originals)
    assert not note_change_after_pin(job("1", request=shown), ledger)
    assert ledger.originals == before


@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("held", [False, True])
def test_nodes_that_a_placed_job_excludes_are_excluded_by_its_user(held: bool, size: int | None) -> None:
    # given a job that was bound to a node, in its own size or in another one
    ledger = ledger_of(EACH, 8, size=size)
    # when it shows an excluded node, its GPUs being those of the pin
    shown = job("1", held=held, request=replace(ON_ONE, excluded_nodes=("n1",)))
    assert note_change_after_pin(shown, ledger)
    # then its user has excluded it, and its size is as before
    assert ledger.originals[KEY] == replace(EACH, excluded_nodes=("n1",))
    assert (KEY in ledger.relocations) is (size is not None)
    assert not note_change_after_pin(shown, ledger)


def test_a_user_may_exclude_nodes_and_change_the_gpus_of_a_placed_job_at_once() -> None:
    ledger = ledger_of(replace(EACH, excluded_nodes=("n3",)), 8)
    shown = job("1", held=False, request=replace(ON_ONE, gpus_per_node=2, excluded_nodes=("n1",)))
    assert note_change_after_pin(shown, ledger)
    assert ledger.originals[KEY] == replace(EACH, gpus_per_node=2, excluded_nodes=("n1",))


EXACT = replace(EACH, gpus_per_node=4, min_nodes=2, max_nodes=2, num_tasks=2, num_cpus=6)


@pytest.mark.parametrize(
    ("original", "gpus", "changes", "newest"),
    [
        # Slurm raises tasks and CPUs with the nodes.
        (EACH, (8,), {"min_nodes": 2, "max_nodes": 2, "num_tasks": 2, "num_cpus": 2},
         {"min_nodes": 2, "max_nodes": 2, "num_tasks": 2, "num_cpus": 2}),
        (replace(EACH, num_cpus=4), (8,), {"min_nodes": 2, "max_nodes": 2, "num_tasks": 8},
         {"min_nodes": 2, "max_nodes": 2, "num_tasks": 8, "num_cpus": 32}),
        (EXACT, (4, 4), {"min_nodes": 1, "max_nodes": 1}, {"min_nodes": 1, "max_nodes": 1}),
        (EXACT, (4, 4), {"min_nodes": 1, "max_nodes": 1, "num_tasks": 1},
         {"min_nodes": 1, "max_nodes": 1, "num_tasks": 1, "num_cpus": 3}),
        (EXACT, (4, 4), {"min_nodes": 1, "max_nodes": 2}, {"min_nodes": 1, "max_nodes": 2}),
        (EXACT, (4, 4), {"min_nodes": 1, "max_nodes": 0}, {"min_nodes": 1, "max_nodes": 1}),  # it has run
        (TOTAL, (4, 4), {"min_nodes": 1, "max_nodes": 1}, {"min_nodes": 1, "max_nodes": 1}),
        (TOTAL, (4, 4), {"min_nodes": 3, "max_nodes": 0}, {"min_nodes": 3, "num_tasks": 3, "num_cpus": 3}),
        (replace(BY_TASK, num_cpus=4), (8,), {"min_nodes": 2, "max_nodes": 2}, {"min_nodes": 2, "max_nodes": 2}),
    ],
)  # fmt: skip
def test_another_number_of_nodes_on_the_nodes_of_the_pin_is_the_users(
    original: ResourceRequest, gpus: tuple[int, ...], changes: dict[str, int], newest: dict[str, int]
) -> None:
    ledger, count = ledger_of(original, *gpus), len(gpus)
    bound = replace(original, min_nodes=count, max_nodes=count, required_nodes=("n1", "n2")[:count])
    assert not note_change_after_pin(job("1", held=False, request=bound), ledger)
    shown = job("1", held=False, request=replace(bound, **changes))  # type: ignore[arg-type]
    assert note_change_after_pin(shown, ledger)
    assert ledger.originals[KEY] == replace(original, **newest)  # type: ignore[arg-type]
    assert not note_change_after_pin(shown, ledger)


def test_users_may_change_gpus_and_nodes_of_a_placed_job_at_once() -> None:
    ledger = ledger_of(EACH, 8)
    shown = replace(ON_ONE, gpus_per_node=4, min_nodes=2, max_nodes=2, num_tasks=2)
    assert note_change_after_pin(job("1", held=False, request=shown), ledger)
    assert ledger.originals[KEY] == replace(EACH, gpus_per_node=4, min_nodes=2, max_nodes=2, num_tasks=2, num_cpus=2)


def test_a_job_in_another_size_stays_in_it_with_the_number_of_nodes_that_its_user_sets() -> None:
    ledger, shown = ledger_of(EACH, 4, size=4), replace(ON_TWO, num_tasks=2, num_cpus=2, required_nodes=("n1",))
    assert not note_change_after_pin(job("1", request=shown, held=True), ledger)
    assert note_change_after_pin(job("1", request=shown, held=False), ledger)
    assert ledger.originals[KEY] == replace(shown, required_nodes=())
    assert ledger.relocations[KEY].gpus is None
    assert not note_change_after_pin(job("1", request=shown, held=False), ledger)


@pytest.mark.parametrize(
    ("ledger", "shown"),
    [
        (ledger_of(TOTAL, 4, 4), job("1", held=True, request=replace(ON_TWO, min_nodes=1))),  # restored in part
        (ledger_of(EACH, 8, masks=(255,)), job("1", held=False, request=replace(ON_ONE, min_nodes=2))),
        (ledger_of(EACH, 8), job("1", held=False, request=replace(ON_ONE, gpus_fixed=True, min_nodes=2))),
        (ledger_of(EACH, 8), job("1", held=False, request=replace(ON_ONE, required_nodes=("n2",), min_nodes=2))),
        (ledger_of(EACH, 8), job("1", held=False, request=replace(ON_ONE, num_tasks=3, num_cpus=9))),
    ],
)
def test_a_number_of_nodes_that_headway_may_have_written_is_not_the_users(ledger: Ledger, shown: SlurmJob) -> None:
    before = dict(ledger.originals)
    assert not note_change_after_pin(shown, ledger)
    assert ledger.originals == before


@pytest.mark.parametrize(
    ("request_shown", "reason", "other"),
    [
        (ON_TWO, "Resources", False),
        (replace(ON_TWO, max_nodes=0), "Resources", False),
        (replace(ON_TWO, min_nodes=1), "Resources", False),
        (replace(ON_TWO, min_nodes=3, max_nodes=3), "Resources", True),
        (replace(ON_TWO, min_nodes=1, max_nodes=1), "Resources", True),
        (replace(ON_TWO, min_nodes=1, max_nodes=0), "Resources", False),
        (replace(ON_TWO, min_nodes=1, max_nodes=0), "BadConstraints", True),
        (ON_TWO, "BadConstraints", False),
        (replace(ON_TWO, min_nodes=3, gpus_fixed=True), "BadConstraints", False),
        (replace(ON_TWO, min_nodes=3, required_nodes=("n1", "n3")), "Resources", False),
    ],
)
def test_a_placed_job_shows_a_number_of_nodes_with_which_it_may_not_start(
    request_shown: ResourceRequest, reason: str, other: bool
) -> None:
    pin = PinRecord(("n1", "n2"), (4, 4), 0, 100.0, "fifo", "")
    shown = job("1", held=reason == "BadConstraints", reason=reason, request=request_shown)
    assert shows_other_nodes(shown, pin) is other


def test_a_pin_of_an_earlier_run_and_a_job_that_runs_show_no_change() -> None:
    ledger, shown = ledger_of(EACH, 8), replace(ON_ONE, gpus_per_node=2)
    assert not note_change_after_pin(job("1", request=shown, restarts=1), ledger)
    assert not note_change_after_pin(job("1", request=shown, phase=Phase.RUNNING), ledger)


def test_a_job_that_headway_has_resized_stays_in_the_size_to_which_its_user_changes_it() -> None:
    ledger, shown = ledger_of(EACH, 4, size=4), replace(ON_ONE, gpus_per_node=2, num_cpus=3)
    assert not note_change_after_pin(job("1", request=shown, held=True), ledger)  # perhaps its former size
    assert note_change_after_pin(job("1", request=shown, held=False), ledger)
    assert ledger.originals[KEY] == replace(shown, required_nodes=())
    assert ledger.relocations[KEY] == RelocationConstraint(avoid=frozenset({"n3"}))


def test_a_job_whose_nodes_are_those_of_a_lost_placement_takes_no_more_nodes_than_its_user_gives_it_gpus() -> None:
    rebuilt = request(gpus_per_job=8, min_nodes=2, max_nodes=2, num_tasks=2)
    ledger = ledger_of(rebuilt)
    held = {"held": True, "admin_comment": "headway:hold"}
    then, now = job("1", request=rebuilt, **held), job("1", request=replace(rebuilt, gpus_per_job=1), **held)
    assert note_change_since(then, now, ledger)
    assert ledger.originals[KEY] == replace(rebuilt, gpus_per_job=1, min_nodes=1, max_nodes=1)


def test_a_resized_job_that_shows_the_nodes_of_its_last_run_keeps_the_range_of_nodes_of_its_user() -> None:
    """Its four nodes were Headway's choice for 14 GPUs; with 3 GPUs, it could start on no four nodes."""
    original = request(gpus_per_job=14, min_nodes=1, max_nodes=4, num_tasks=1, num_cpus=1)
    nodes = ("n1", "n2", "n3", "n4")
    last = replace(original, min_nodes=4, max_nodes=0, num_tasks=4, num_cpus=4, required_nodes=nodes)
    ledger = ledger_of(original, size=1)
    then, now = job("1", request=last), job("1", request=replace(last, gpus_per_job=3))
    assert note_change_since(then, now, ledger)
    assert ledger.originals[KEY] == replace(original, gpus_per_job=3)
    assert ledger.relocations[KEY].gpus is None


@pytest.mark.parametrize(
    ("changes", "newest"),
    [
        ({"gpus_per_node": 2}, replace(EACH, gpus_per_node=2)),
        ({"min_nodes": 2, "max_nodes": 2, "num_tasks": 2}, replace(EACH, min_nodes=2, max_nodes=2, num_tasks=2)),
        ({"min_nodes": 3}, replace(EACH, min_nodes=3, max_nodes=3)),
        ({"num_tasks": 4, "num_cpus": 12}, replace(EACH, num_tasks=4)),
        (
            {"min_nodes": 2, "max_nodes": 2, "num_tasks": 2, "num_cpus": 12},
            replace(EACH, min_nodes=2, max_nodes=2, num_tasks=2, num_cpus=12),
        ),
        ({"memory_mib_per_node": 7, "excluded_nodes": ("n4",)}, replace(EACH, memory_mib_per_node=7, excluded_nodes=("n4",))),
    ],
)  # fmt: skip
def test_fields_that_differ_between_two_readings_of_a_held_job_are_the_users(
    changes: dict[str, object], newest: ResourceRequest
) -> None:
    ledger = ledger_of(EACH)
    then, now = job("1", request=ON_ONE, held=True), job("1", request=replace(ON_ONE, **changes), held=True)  # type: ignore[arg-type]
    assert note_change_since(then, now, ledger)
    assert ledger.originals[KEY] == newest


@pytest.mark.parametrize(("original", "count"), [(TOTAL, {"gpus_per_job": 2}), (EACH, {"gpus_per_node": 2})])
def test_a_restored_request_that_the_ledger_keeps_follows_its_user(
    original: ResourceRequest, count: dict[str, int]
) -> None:
    ledger = ledger_of(original)
    shown = replace(original, max_nodes=0, **count)  # type: ignore[arg-type]
    assert note_change_of_restored(job("1", request=shown), ledger)
    assert ledger.originals[KEY] == replace(original, **count)  # type: ignore[arg-type]
    assert not note_change_of_restored(job("1", request=shown), ledger)


@pytest.mark.parametrize(
    ("ledger", "shown"),
    [
        (ledger_of(TOTAL), replace(TOTAL, max_nodes=0)),
        (ledger_of(TOTAL, size=2), replace(TOTAL, gpus_per_job=2)),  # resized by Headway
        (ledger_of(TOTAL), replace(TOTAL, gpus_per_job=2, required_nodes=("n1",))),
        (ledger_of(TOTAL), ON_TWO),
        (ledger_of(TOTAL), replace(ON_TWO, required_nodes=())),
        (ledger_of(TOTAL), replace(TOTAL, gpus_per_job=2, gpus_per_node=2, gpus_fixed=True)),
        (ledger_of(BY_TASK), replace(BY_TASK, num_tasks=2)),
        (ledger_of(EACH), replace(EACH, min_nodes=2, num_cpus=9)),
        (ledger_of(TOTAL, 4, 4), replace(TOTAL, gpus_per_job=2)),  # the pin may have arrived in part
    ],
)
def test_a_request_that_headway_may_have_written_is_not_the_users(ledger: Ledger, shown: ResourceRequest) -> None:
    assert not note_change_of_restored(job("1", request=shown), ledger)


@pytest.mark.parametrize("held", [True, False])
def test_slurm_may_compute_numbers_of_a_job_that_is_not_held(held: bool) -> None:
    ledger = ledger_of(EACH)
    shown = replace(ON_ONE, gpus_per_node=2, num_tasks=12)
    assert note_change_since(job("1", request=ON_ONE, held=held), job("1", request=shown, held=True), ledger)
    assert ledger.originals[KEY] == replace(EACH, gpus_per_node=2, num_tasks=12 if held else EACH.num_tasks)


@pytest.mark.parametrize(
    ("original", "then", "now"),
    [
        (EACH, {"num_cpus": 9, "max_nodes": 0}, {}),
        (EACH, {"required_nodes": (), "min_nodes": 2, "max_nodes": 0}, {"required_nodes": (), "max_nodes": 1}),
        (replace(EACH, max_nodes=0), {"min_nodes": 2, "max_nodes": 0}, {}),
    ],
)
def test_a_restart_of_slurmctld_shows_other_nodes_and_cpus(
    original: ResourceRequest, then: dict[str, object], now: dict[str, object]
) -> None:
    """Slurm shows its own estimate of the nodes until then."""
    ledger = ledger_of(original)
    first, second = (job("1", request=replace(ON_ONE, **changes), held=True) for changes in (then, now))  # type: ignore[arg-type]
    assert not note_change_since(first, second, ledger)
    assert ledger.originals == {KEY: original}


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({}, {}),
        ({}, {"required_nodes": ("n2",), "gpus_per_node": 2}),  # a late pin of Headway's, perhaps
        ({"required_nodes": ()}, {}),
    ],
)
def test_a_node_list_is_never_the_users(then: dict[str, object], now: dict[str, object]) -> None:
    ledger = ledger_of(EACH)
    first, second = (job("1", request=replace(ON_ONE, **changes), held=True) for changes in (then, now))  # type: ignore[arg-type]
    assert not note_change_since(first, second, ledger)
    assert ledger.originals == {KEY: EACH}


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, False),
        ({"request": replace(EACH, gpus_per_node=2)}, True),
        ({"request": replace(EACH, min_nodes=2)}, True),
        ({"request": replace(EACH, num_cpus=9)}, False),
        ({"request": ON_ONE}, False),
        ({"qos": "high"}, True),
        ({"account": "other"}, True),
        ({"partition": "dl2"}, True),
        ({"partition": "long,dl"}, False),
        ({"time_limit_s": 60.0}, True),
        ({"licenses": "matlab"}, True),
        ({"features": "a100"}, True),
        ({"reservation": "maintenance"}, True),
        ({"qos": "high", "held": False}, False),
        ({"qos": "high", "restarts": 1}, False),
    ],
)
def test_what_limits_count_and_nodes_must_have_is_the_users_change(change: dict[str, object], counts: bool) -> None:
    last = job("1", request=EACH, partition="dl,long" if change.get("partition") == "long,dl" else "dl")
    assert counts_differently(last, replace(last, **change), Ledger()) is counts  # type: ignore[arg-type]


def test_a_change_of_a_request_that_the_ledger_keeps_counts_by_its_own_rules() -> None:
    last = job("1", request=EACH)
    assert not counts_differently(last, replace(last, request=replace(EACH, gpus_per_node=2)), ledger_of(EACH))
    assert counts_differently(last, replace(last, qos="high"), ledger_of(EACH))


def test_a_job_on_the_nodes_of_the_pin_that_was_requeued_since_is_the_same_job() -> None:
    pin = PinRecord(("n1", "n2"), (4, 4), 0, 100.0, "fifo", "")
    fewer = replace(ON_TWO, gpus_per_node=2)
    assert request_of_a_changed_job(job("1", restarts=1, request=fewer), pin, TOTAL) == replace(
        fewer, required_nodes=()
    )
    assert request_of_a_changed_job(job("1", restarts=0, request=fewer), pin, TOTAL) is None
    assert (
        request_of_a_changed_job(job("1", restarts=1, request=replace(fewer, required_nodes=("n1",))), pin, TOTAL)
        is None
    )
    tasks = replace(BY_TASK, num_tasks=2, required_nodes=("n1", "n2"), max_nodes=2)
    expected = replace(tasks, required_nodes=(), max_nodes=0)
    assert request_of_a_changed_job(job("1", restarts=1, request=tasks), pin, BY_TASK) == expected


@pytest.mark.parametrize(
    ("outcome", "shown_step", "noted"),
    [("done", 1, True), ("done", 0, False), ("found pending, held", 1, False), (None, 1, False)],
)
def test_what_headway_has_ordered_itself_is_not_the_users(
    tmp_path: Path, outcome: str | None, shown_step: int, noted: bool
) -> None:
    """An order that Slurm has not answered may be carried out at any later time."""
    with closing(Journal(tmp_path / "journal.db")) as journal:
        ledger = ledger_of(EACH)
        keeper = LedgerKeeper(journal, ledger, EventLog(RealClock()))
        keeper.update(snapshot(job("1", request=ON_ONE, held=True)), ControllerSettings(partitions=("dl",)))
        (number,) = journal.begin("unpin", {KEY: ""}, 1.0)
        keeper.update(
            snapshot(job("1", request=replace(ON_ONE, num_cpus=2), held=True)),
            ControllerSettings(partitions=("dl",)),
            newest_step=number - 1 + shown_step,
        )
        if outcome is not None:
            journal.settle({number: outcome}, 2.0)
        before = ledger.originals[KEY]
        now = job("1", request=replace(ON_ONE, gpus_per_node=2, num_cpus=2), held=True)
        keeper.update(snapshot(now), ControllerSettings(partitions=("dl",)), newest_step=0)
        assert (ledger.originals[KEY] != before) is noted


# --- stories


def lower(world: World, key: JobKey, gpus: int = 2, form: str = "TresPerNode") -> None:
    world.slurm.update(key.job_id, **{form: f"gres:gpu:{gpus}"})


async def requeued(world: World, request: ResourceRequest) -> JobKey:
    """Return a job that has lost its node, and waits for others that fill the cluster."""
    key = world.sbatch(1000.0, request=request)
    await world.go_on(5)
    for _ in range(len(world.slurm._ctld.nodes)):
        world.sbatch(60.0, gpus_per_node=8)
    await world.go_on(5)
    world.slurm.node_down(next(iter(world.nodes(key))))
    await world.go_on(5)
    assert world.slurm.job(key.job_id).held
    return key


@pytest.mark.parametrize(
    ("request_of_user", "change", "placed"),
    [
        (sbatch_request(gpus_per_node=8), {"TresPerNode": "gres:gpu:2"}, [2]),
        (sbatch_request(gpus=8), {"TresPerJob": "gres:gpu:2", "TresPerNode": ""}, [2]),
        (sbatch_request(gpus_per_node=4), {"NumNodes": "2-2"}, [4, 4]),
    ],
)
async def test_a_job_that_waits_after_a_requeue_is_placed_as_its_user_has_changed_it(
    tmp_path: Path, request_of_user: ResourceRequest, change: dict[str, str], placed: list[int]
) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = await requeued(world, request_of_user)
    world.slurm.update(key.job_id, **change)
    await world.go_on(120)
    assert world.phase(key) is Phase.RUNNING
    assert list(world.nodes(key).values()) == placed


async def test_a_change_of_a_restored_request_while_the_controller_is_away_counts(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = await requeued(world, sbatch_request(gpus=8, nodes=(1, 2)))
    job_id = key.job_id
    again = next(key for key in world.ledger.originals if key.job_id == job_id)
    assert not (await world.cycle.verbs.unpin({again: world.ledger.originals[again]}))
    world.alive = False
    lower(world, again, 2, "TresPerJob")
    world.alive = True
    world.restart()
    await world.go_on(120)
    assert sum(world.nodes(key).values()) == 2


async def test_a_change_between_a_placement_and_its_refusal_counts(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1"}))
    await world.go_on(3)
    assert not world.slurm.job(key.job_id).held
    lower(world, key)
    await world.go_on(60)
    assert list(world.nodes(key).values()) == [2]


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_a_node_that_is_excluded_after_a_placement_stays_excluded(tmp_path: Path, node: str) -> None:
    # given a job that was bound to n1, where Slurm does not start it
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1"}))
    await world.go_on(3)
    assert world.slurm.job(key.job_id).request.required_nodes == ("n1",)
    # when its user excludes a node
    world.slurm.update(key.job_id, ExcNodeList=node)
    await world.go_on(60)
    # then it runs without that node, and shows that it is excluded
    assert world.phase(key) is Phase.RUNNING
    assert node not in world.nodes(key)
    assert world.slurm.job(key.job_id).request.excluded_nodes == (node,)


async def test_a_change_right_before_a_refusal_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of that cycle does not show it yet."""
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1"}))
    await world.go_on(3)
    hold: Callable[..., object] = world.cycle.verbs.hold

    async def after_the_change(why: dict[JobKey, str]) -> object:
        if key in why and world.slurm.job(key.job_id).request.required_nodes:
            lower(world, key)
        return await hold(why)  # type: ignore[misc]

    monkeypatch.setattr(world.cycle.verbs, "hold", after_the_change)
    await world.go_on(60)
    assert list(world.nodes(key).values()) == [2]


@pytest.mark.parametrize("alive", [False, True])
async def test_a_job_that_was_requeued_and_changed_before_it_was_read_leaves_its_node(
    tmp_path: Path, alive: bool
) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(5)
    (node,) = world.nodes(key)
    world.alive = alive
    world.slurm.node_down(node)
    await world.clock.advance(5.0)
    lower(world, key, 4)
    await world.clock.advance(20.0)
    world.alive = True
    if not alive:
        world.restart()
    await world.go_on(300)
    assert world.phase(key) is Phase.RUNNING
    assert list(world.nodes(key).values()) == [4]
    assert node not in world.nodes(key)


async def test_a_job_that_was_changed_while_its_run_ended_is_the_same_job_for_the_next_controller(
    tmp_path: Path,
) -> None:
    """The controller has seen that it is requeued, and is started again before the job waits."""
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, request=sbatch_request(gpus=11, nodes=(1, 4)))
    await world.go_on(5)
    assert len(world.nodes(key)) == 2
    await world.slurm.client.requeue_hold([key])
    await world.turn()
    assert world.phase(key) is Phase.COMPLETING
    world.alive = False
    await world.clock.advance(60.0)
    lower(world, key, 1, "TresPerJob")
    world.alive = True
    world.restart()

    await world.go_on(60)

    assert list(world.nodes(key).values()) == [1]
    assert world.slurm.job(key.job_id).request.min_nodes == 1
