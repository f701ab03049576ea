"""Metrics: what is counted, what a scrape sees, and where it may be scraped."""

import asyncio
import socket
import tempfile
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.admin.explain.wait_reason import FOR_GPUS, REASONS
from controller.admin.metrics.current_view import CurrentView
from controller.admin.metrics.exporter import make_registry, parse_metrics_address, serve_metrics, serve_standby_metrics
from controller.admin.metrics.metered_client import MeteredClient
from controller.base.clock import VirtualClock
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, SlurmReplyError, SlurmUnavailableError
from controller.base.lease import Lease, write_lease
from controller.base.watchdog_mark import mark_check
from controller.slurm.client import Failure, FailureReason, SlurmClient
from controller.slurm.embedded import EmbeddedSlurm
from controller.slurm.model.job import JobKey
from tests.unit.controller.cycle.decision.test_decider import BrokenPolicy
from tests.unit.controller.forecast.test_service import forecasts_in, waiting_world
from tests.unit.controller.worlds.controller_world import world_in

KEY, GONE = JobKey("1", 1), JobKey("2", 1)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels)


# --- decisions


async def test_decisions_are_counted_by_policy(folder):
    # given a policy server that answers once, and is then away
    world = world_in(folder)
    registry = make_registry(world)
    world.sbatch(gpus_per_node=1)
    await world.turn()
    await world.clock.advance(1.0)
    world.endpoint.away = True
    world.sbatch(gpus_per_node=8)
    await world.turn()
    # then
    assert value(registry, "headway_decisions_total", decider="policy") == 1
    assert value(registry, "headway_decisions_total", decider="fallback") == 1
    assert value(registry, "headway_decisions_total", decider="none") == 0
    assert value(registry, "headway_decision_seconds_count", decider="fallback") == 1
    assert value(registry, "headway_jobs_placed_total") == 2
    assert value(registry, "headway_policy_serving") == 0
    assert value(registry, "headway_policy_rejects_total") == 0


async def test_a_cycle_without_a_decision_is_counted(folder):
    world = world_in(folder, fallback=BrokenPolicy())
    world.endpoint.away = True
    registry = make_registry(world)
    world.sbatch(gpus_per_node=1)
    await world.turn()
    assert value(registry, "headway_decisions_total", decider="none") == 1


async def test_a_cycle_without_waiting_jobs_is_no_decision(folder):
    world = world_in(folder)
    registry = make_registry(world)
    await world.turn()
    assert sum(value(registry, "headway_decisions_total", decider=kind) for kind in ("policy", "fallback", "none")) == 0
    assert value(registry, "headway_cycles_total") == 1


async def test_a_refused_decision_is_counted(folder):
    world = world_in(folder)
    world.endpoint.placement = type(world.endpoint.placement)((77,), (1,))
    registry = make_registry(world)
    world.sbatch(gpus_per_node=1)
    await world.turn()
    assert value(registry, "headway_policy_rejects_total") == 1


async def test_a_decision_of_the_policys_guard_is_counted(folder):
    world = world_in(folder)
    world.endpoint.guard = "job 1 is overdue"
    registry = make_registry(world)
    world.sbatch(gpus_per_node=1)
    await world.turn()
    assert value(registry, "headway_policy_guarded_total") == 1


async def test_a_state_outside_of_the_trained_range_is_shown(folder):
    world = world_in(folder)
    world.endpoint.outside = "1 of 1 jobs request 1 GPUs (trained: 2 to 4)"
    registry = make_registry(world)
    assert value(registry, "headway_policy_outside_trained_range") == 0
    world.sbatch(gpus_per_node=1)
    await world.turn()
    assert value(registry, "headway_policy_outside_trained_range") == 1


# --- the cluster


async def test_queue_and_gpus_are_reported_as_they_are_now(folder):
    world = world_in(folder)
    world.endpoint.away = True
    registry = make_registry(world)
    world.sbatch(gpus_per_node=8, nodes=3)
    await world.go_on(2)
    world.sbatch(gpus_per_node=8, nodes=2)
    world.sbatch(gpus_per_node=8, hold=True)
    world.slurm.node_drain("n4")
    await world.turn()
    roles = {
        role: value(registry, "headway_jobs", role=role) for role in ("waiting", "running", "ineligible", "starting")
    }
    assert roles == {"waiting": 1, "running": 1, "ineligible": 1, "starting": 0}
    assert value(registry, "headway_gpus_used") == 24
    assert value(registry, "headway_gpus_total") == 32
    assert value(registry, "headway_nodes_available") == 3
    assert value(registry, "headway_nodes_total") == 4
    world.slurm.reserve("upkeep", ("n3", "n4"), world.clock.now(), world.clock.now() + 600.0, maintenance=True)
    await world.turn()
    assert value(registry, "headway_nodes_available") == 2


async def test_waiting_jobs_are_counted_by_what_they_wait_for(folder):
    world = world_in(folder)
    world.endpoint.away = True
    registry = make_registry(world)
    world.sbatch(gpus_per_node=8, nodes=4)
    await world.go_on(2)
    for hold in (False, False, True):
        world.sbatch(gpus_per_node=8, hold=hold)
    await world.turn()
    counted = {reason: value(registry, "headway_jobs_waiting", reason=reason) for reason in REASONS}
    assert {reason: jobs for reason, jobs in counted.items() if jobs} == {FOR_GPUS: 2, "held by its user": 1}
    assert None not in counted.values()


async def test_all_that_read_the_cluster_between_two_cycles_share_one_view(folder):
    world = world_in(folder)
    current = CurrentView(world)
    assert current.get() is None
    world.sbatch(gpus_per_node=1)
    await world.turn()
    first = current.get()
    assert first is not None
    assert first.result is world.last
    assert current.get() is first
    # a new cycle, and a reload that changes the partitions, each make a new one
    await world.turn()
    second = current.get()
    assert second is not first
    assert second.result is world.last
    world.settings = world.settings.model_copy(update={"partitions": ("other",)})
    assert current.get().partitions == {"other"}


async def test_estimates_of_starts_have_metrics(folder):
    # given a job that waits, without an estimate
    world, _ = await waiting_world(folder)
    fake, forecasts = forecasts_in(world)
    registry = make_registry(world, forecasts=forecasts)
    assert value(registry, "headway_start_forecast_timestamp_seconds") == 0
    assert value(registry, "headway_start_forecast_wait_seconds", gpus="8") is None
    # when an estimate has been made: its job starts in two minutes; of earlier ones 8 of 10 have held
    fake.held, fake.missed = 8, 2
    await forecasts.make(world.last, "fifo")
    # then
    made_s = world.last.observation.state.time_s
    assert value(registry, "headway_start_forecast_timestamp_seconds") == made_s
    assert value(registry, "headway_start_forecast_wait_seconds", gpus="8") == made_s + 120 - world.clock.now()
    assert value(registry, "headway_start_ranges_total", held="yes") == 8
    assert value(registry, "headway_start_ranges_total", held="no") == 2


def test_before_the_first_cycle_unknown_values_are_left_out(folder):
    registry = make_registry(world_in(folder))
    assert value(registry, "headway_gpus_total") is None
    assert value(registry, "headway_lease_age_seconds") is None
    assert value(registry, "headway_last_cycle_timestamp_seconds") == 0
    assert registry.get_sample_value("headway_build_info", {"version": "0.1.0"}) == 1


def test_the_age_of_the_lease(folder):
    world = world_in(folder)
    write_lease(world.settings.lease_path, Lease(1_000_000_000, 30.0, ("dl",), 0, 0))
    assert value(make_registry(world), "headway_lease_age_seconds") > 1e8


def test_the_last_check_of_the_watchdog(folder):
    world = world_in(folder)
    registry, name = make_registry(world), "headway_watchdog_last_check_timestamp_seconds"
    assert value(registry, name) == 0
    mark_check(world.settings.runtime_dir)
    assert value(registry, name) > 0
    # an emulated Slurm needs no watchdog
    world.settings = world.settings.model_copy(update={"slurm_client": "embedded"})
    assert value(registry, name) is None


async def test_no_label_grows_with_the_jobs_beyond_metrics_jobs(folder):
    # given two hundred jobs of as many users
    world = world_in(folder, settings_changes={"metrics_jobs": 10})
    world.endpoint.away = True
    world.slurm_says()
    registry = make_registry(world)
    await world.turn()
    few = sum(len(family.samples) for family in registry.collect())
    for number in range(200):
        world.sbatch(gpus_per_node=1, user=f"u{number}", name=f"job{number}")
    await world.go_on(3)
    many = sum(len(family.samples) for family in registry.collect())
    # then a scrape is as long as before, but for the decision's own histogram, and ten jobs without estimates
    assert many - few <= 20 + 10


# --- calls to Slurm


class Scripted:
    """A Slurm with given answers."""

    def __init__(self, clock, answer):
        self.clock = clock
        self.answer = answer

    async def _say(self):
        await self.clock.sleep(0.2)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def release(self, keys):
        return await self._say()

    async def snapshot(self):
        return await self._say()


async def outcome_of(call, answer):
    """The client after one call that took 0.2 s, and what came of it."""
    clock = VirtualClock()
    client = MeteredClient(Scripted(clock, answer), clock)
    (result,) = await clock.run(asyncio.wait_for(asyncio.gather(call(client), return_exceptions=True), 60))
    return client, result


def sample(metric, suffix, **labels):
    found = [
        s.value for family in metric.collect() for s in family.samples if s.name.endswith(suffix) and s.labels == labels
    ]
    return found[0] if found else None


async def test_answers_go_through_and_are_timed():
    client, result = await outcome_of(lambda slurm: slurm.release([KEY]), {})
    assert result == {}
    assert sample(client.latency, "_count", verb="release") == 1
    assert sample(client.latency, "_sum", verb="release") == pytest.approx(0.2)
    assert sample(client.errors, "_total", verb="release", kind="refused") == 0
    (found,) = client.calls()
    assert (found.verb, found.calls, found.failed) == ("release", 1, 0)
    assert found.total_s == pytest.approx(0.2)


async def test_jobs_that_a_call_failed_for_are_counted_by_kind():
    failures = {
        KEY: Failure("no"),
        GONE: Failure("gone", FailureReason.GONE),
        JobKey("3", 1): Failure("?", FailureReason.UNAVAILABLE),
    }
    client, result = await outcome_of(lambda slurm: slurm.release(list(failures)), failures)
    assert result is failures
    for kind in ("refused", "gone", "unavailable"):
        assert sample(client.errors, "_total", verb="release", kind=kind) == 1
    assert [(found.verb, found.failed) for found in client.calls()] == [("release", 3)]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SlurmUnavailableError("away"), "unavailable"),
        (SlurmReplyError("what?"), "reply"),
        (KeyError("a defect"), "error"),
    ],
)
async def test_calls_without_an_answer_are_counted_and_the_error_is_raised(error, kind):
    client, result = await outcome_of(lambda slurm: slurm.snapshot(), error)
    assert result is error
    assert sample(client.errors, "_total", verb="snapshot", kind=kind) == 1
    assert sample(client.latency, "_count", verb="snapshot") == 1


async def test_a_call_that_others_cancel_is_counted_as_a_defect():
    client, result = await outcome_of(lambda slurm: slurm.snapshot(), asyncio.CancelledError())
    assert isinstance(result, asyncio.CancelledError)
    assert sample(client.errors, "_total", verb="snapshot", kind="error") == 1


async def test_a_metered_client_has_the_whole_protocol():
    slurm = EmbeddedSlurm(clock=VirtualClock())
    client = MeteredClient(slurm.client, VirtualClock())
    assert isinstance(client, SlurmClient)
    assert (await client.snapshot()).jobs == ()
    assert (await client.facts()).client == "embedded"
    assert await client.read([KEY]) == {}
    for call in (
        client.hold([KEY]),
        client.mark([KEY], "x"),
        client.unmark([KEY], "x"),
        client.pin([]),
        client.unpin({}),
        client.release([KEY]),
        client.signal([KEY], "USR1"),
        client.requeue_hold([KEY]),
        client.set_begin_time([KEY], None),
    ):
        assert all(failure.gone for failure in (await call).values())


# --- the exporter


async def test_a_scrape_over_http(folder):
    world = world_in(folder)
    await world.turn()
    with serve_metrics(world, "127.0.0.1:0") as port:
        text = await asyncio.to_thread(scrape, port)
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"headway_decisions", "headway_jobs", "headway_gpus_used", "headway_policy_serving"} <= names
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        return reply.read().decode()


async def test_the_calls_of_a_metered_client_are_scraped_too(folder):
    world = world_in(folder)
    world.client = MeteredClient(world.slurm.client, world.clock)
    await world.client.snapshot()
    assert value(make_registry(world), "headway_slurm_call_seconds_count", verb="snapshot") == 1


async def test_one_of_several_controllers_exports_that_it_works(folder):
    world = world_in(folder)
    with serve_metrics(world, "127.0.0.1:0", cluster="lab") as port:
        assert 'headway_stands_by{slurm_cluster="lab"} 0.0' in await asyncio.to_thread(scrape, port)
    with serve_metrics(world, "127.0.0.1:0") as port:
        assert "headway_stands_by" not in await asyncio.to_thread(scrape, port)
    with serve_standby_metrics("", "lab") as port:
        assert port == 0


def test_no_address_serves_nothing(folder):
    world = world_in(folder)
    with serve_metrics(world, "") as port:
        assert port == 0
    assert world.listeners == []


def test_a_port_in_use_is_named_with_the_remedy(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                ConfigurationError, match=rf"metrics_address: cannot listen on 127.0.0.1:{port}: .*another port"
            ),
            serve_metrics(world_in(folder), f"127.0.0.1:{port}"),
        ):
            pass


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("127.0.0.1:19341", ("127.0.0.1", 19341)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:19341", ("::1", 19341)),
        ("10.1.2.3:19341", ("10.1.2.3", 19341)),
        ("0.0.0.0:19341", ("0.0.0.0", 19341)),
    ],
)
def test_numeric_addresses_are_accepted(address, parsed):
    assert parse_metrics_address(address) == parsed


@pytest.mark.parametrize(
    "address", [":19341", "*:19341", "19341", "node7:19341", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1"]
)
def test_incomplete_addresses_are_refused(address):
    with pytest.raises(ConfigurationError, match="metrics_address: "):
        parse_metrics_address(address)


async def test_jobs_that_slurm_refuses_again_and_again_are_counted(folder):
    world = world_in(folder)
    registry = make_registry(world)
    key = world.sbatch(gpus_per_node=1, never_starts=True)
    await world.go_on(5)
    assert value(registry, "headway_jobs_refused_often") == 0
    await world.go_on(90)
    assert world.ledger.refusals[key].count == 3
    assert value(registry, "headway_jobs_refused_often") == 1


def test_the_default_port_is_no_exporters() -> None:
    """Prometheus's list of default ports gives away 9100 to 9999, and 9341 to the Slurm exporter."""
    default = ControllerSettings(partitions=("gpu",)).metrics_address
    parsed = parse_metrics_address(default)
    assert parsed is not None
    host, port = parsed
    assert host == "127.0.0.1"
    assert not 9090 <= port <= 9999
    assert 1024 < port < 32768, "not one of the kernel's for outgoing connections"
