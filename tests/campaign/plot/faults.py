"""Faults that a story can inject. Each function is the verb of a step; `mend` undoes all of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.campaign.plot.other_processes import end_policy, end_watchdog, stop_agent, stop_policy, stop_watchdog
from tests.campaign.world.cluster import Cluster
from tests.campaign.world.journal_disk import damage_rows, set_version
from tests.campaign.world.lies import lie

Fault = Callable[..., None]


def kill_controller(cluster: Cluster, awaits: int, back_in_s: float) -> None:
    """Kill the controller (SIGKILL) at the await of that number from now on, or at once if it stands still; another one starts."""
    if cluster.process.stopped:
        cluster.process.kill()
    else:
        cluster.process.kill_after(awaits)
    cluster.restart_in(back_in_s)


def stop_controller(cluster: Cluster, seconds: float, awaits: int = 0) -> None:
    """Send SIGSTOP, at once or at the await of that number from now on, and SIGCONT after a while."""
    process, loop = cluster.process, asyncio.get_running_loop()

    def continue_later() -> None:
        loop.call_later(seconds, process.cont)

    if awaits:
        process.stop_after(awaits, continue_later)
    else:
        process.stop()
        continue_later()


def kill_watchdog(cluster: Cluster, awaits: int) -> None:
    """Kill the watchdog (SIGKILL); its timer starts another one."""
    dying = cluster.watchdog
    dying.on_death(cluster.watchdog_died)
    dying.kill_after(awaits)


def machine_sleeps(cluster: Cluster, seconds: float) -> None:
    """Suspend the whole machine: time passes, and nothing runs."""
    cluster.loop.pass_over(seconds)


def slurmctld_away(cluster: Cluster, seconds: float) -> None:
    """Make slurmctld unavailable to every client for `seconds`."""
    away = cluster.slurm.faults.unavailable()
    away.__enter__()
    asyncio.get_running_loop().call_later(seconds, lambda: away.__exit__(None, None, None))


def slurmctld_crashes(cluster: Cluster, lose_newest: int, away_s: float) -> None:
    """Kill slurmctld (SIGKILL), which has lost its newest jobs when it runs again."""
    for key in cluster.slurm.crash_slurmctld(lose_newest, away_s):
        cluster.model.forgotten(key.job_id)
        for ids in cluster.ids.values():
            if key.job_id in ids:
                ids.remove(key.job_id)


def request_lost(cluster: Cluster, verb: str) -> None:
    """Lose the next request of that verb before it reaches slurmctld."""
    cluster.slurm.faults.lose_request(verb)


def reply_lost(cluster: Cluster, verb: str) -> None:
    """Lose the next answer to that verb."""
    cluster.slurm.faults.lose_reply(verb)


def cut_short(cluster: Cluster, verb: str, jobs: int) -> None:
    """Carry out the next request of that verb for its first jobs only."""
    cluster.slurm.faults.cut_short(verb, jobs)


def refused(cluster: Cluster, verb: str) -> None:
    """Refuse the next request of that verb."""
    cluster.slurm.faults.refuse_next(verb, "Unable to contact slurm controller (connect failure)")


def slow(cluster: Cluster, verb: str, seconds: float, lasts_s: float) -> None:
    """Make each call of `verb` take `seconds` longer, for `lasts_s` seconds."""
    cluster.slurm.faults.slow(verb, seconds)
    asyncio.get_running_loop().call_later(lasts_s, lambda: cluster.slurm.faults.slow(verb, 0.0))


class InjectedError(OSError):
    """An error with which a story lets a background task fail. It is logged like a defect, but is none."""


def task_fails(cluster: Cluster, pick: int) -> None:
    """Let one of the controller's background tasks fail with an error."""
    controller = cluster.controller
    if controller is not None:
        names = sorted(controller.tasks.failures.keys() - {"lease"})  # without it the controller ends, as it must
        if names:
            cluster.process.fail(names[pick % len(names)], InjectedError("injected"))


def policy_fails(cluster: Cluster, mood: str, seconds: float) -> None:
    """Make the policy server absent, slow or unhealthy for a while, or let it send invalid answers."""
    server = cluster.servers[cluster.current_policy]
    server.mood = mood
    asyncio.get_running_loop().call_later(seconds, server.recover)


def agent_killed(cluster: Cluster, node: str, seconds: float) -> None:
    """Disconnect the agent of a node for a while."""
    cluster.fleet.leave(node)
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.fleet.come(node))


def node_crashes(cluster: Cluster, node: str, seconds: float) -> None:
    """Crash a node, with its jobs, for a while."""
    for expected in cluster.model.jobs.values():
        if expected.running and node in expected.nodes:
            expected.requeues += 1
    cluster.slurm.node_down(node)
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.slurm.node_resume(node))


def clock_jumps(cluster: Cluster, seconds: float, lasts_s: float) -> None:
    """Set the clock of the controller's machine wrong, and correct it after a while."""
    cluster.clock.offset_s += seconds

    def right() -> None:
        cluster.clock.offset_s -= seconds

    asyncio.get_running_loop().call_later(lasts_s, right)


def disk_full(cluster: Cluster, seconds: float) -> None:
    """Let no byte be added to the journal for a while, by a limit of SQLite."""
    cluster.limit_journal(full=True)
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.limit_journal(full=False))


def disk_slow(cluster: Cluster, by_s: float, seconds: float) -> None:
    """Let each write of the journal take `by_s` seconds for a while, in which the controller stands still."""
    cluster.slow_journal(by_s)
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.slow_journal(0.0))


def agent_lies(cluster: Cluster, node: str, seed: int, every_s: float, seconds: float) -> None:
    """Let the agent of a node send reports that are not true for a while, among its true ones."""
    chance, loop = random.Random(seed), asyncio.get_running_loop()
    until_s = loop.time() + seconds

    def tell() -> None:
        cluster.fleet.lies(node, lambda runs, now_s: lie(chance, node, runs, now_s))
        if loop.time() < until_s:
            loop.call_later(every_s, tell)

    tell()


def journal_damaged(cluster: Cluster, seed: int, back_in_s: float) -> None:
    """Kill the controller, and overwrite bytes of its journal before it starts again."""
    cluster.process.kill()
    chance = random.Random(seed)
    for path in sorted(cluster.settings.state_dir.glob("journal.sqlite*")):
        data = bytearray(path.read_bytes())
        if data and path.name in {"journal.sqlite", "journal.sqlite-wal"}:
            for _ in range(20):
                data[chance.randrange(len(data))] = chance.randrange(256)
            path.write_bytes(bytes(data))
    cluster.restart_in(back_in_s)


def journal_of_another_version(cluster: Cluster, version: int, back_in_s: float) -> None:
    """Kill the controller, and give its journal the number of another version."""
    cluster.process.kill()
    set_version(cluster.settings.journal_path, version)
    cluster.restart_in(back_in_s)


def journal_rows_damaged(cluster: Cluster, seed: int, back_in_s: float) -> None:
    """The controller is killed, and values in its journal can no longer be read when it starts again."""
    cluster.process.kill()
    damage_rows(cluster.settings.journal_path, seed)
    cluster.restart_in(back_in_s)


FAULTS: dict[str, Fault] = {
    call.__name__: call
    for call in (
        kill_controller, stop_controller, kill_watchdog, machine_sleeps, slurmctld_away, slurmctld_crashes,
        request_lost, reply_lost, cut_short, refused, slow, task_fails, policy_fails, agent_killed, node_crashes,
        clock_jumps, disk_full, journal_damaged, journal_of_another_version,
        journal_rows_damaged, disk_slow, agent_lies, stop_watchdog, end_watchdog, stop_policy, end_policy, stop_agent,
    )
}  # fmt: skip
