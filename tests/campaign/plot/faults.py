"""Faults that a story can inject. Each function is the verb of a step; `mend` undoes all of them.

A fault may wait for an event that never comes, or meet a process that is away. So each returns whether it has taken effect at once,
and counts a later effect itself in `Cluster.effects`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

from controller.slurm.embedded.faults import FaultKind
from tests.campaign.plot.other_processes import (
    end_policy,
    end_watchdog,
    policy_fails,
    stop_agent,
    stop_policy,
    stop_watchdog,
)
from tests.campaign.world.cluster import Cluster
from tests.campaign.world.journal_disk import damage_rows, set_version
from tests.campaign.world.lies import lie

Fault = Callable[..., bool]


def kill_controller(cluster: Cluster, awaits: int, back_in_s: float) -> bool:
    """Kill the controller (SIGKILL) at the await of that number from now on, or at once if it stands still; another one starts."""
    process = cluster.process
    cluster.restart_in(back_in_s)
    if process.stopped:
        process.kill()
        return not process.alive
    process.kill_after(awaits, partial(cluster.took_effect, "kill_controller"))
    return False


def stop_controller(cluster: Cluster, seconds: float, awaits: int = 0) -> bool:
    """Send SIGSTOP, at once or at the await of that number from now on, and SIGCONT after a while."""
    process, loop = cluster.process, asyncio.get_running_loop()

    def continue_later() -> None:
        loop.call_later(seconds, process.cont)

    def stopped() -> None:
        cluster.took_effect("stop_controller")
        continue_later()

    if awaits:
        process.stop_after(awaits, stopped)
        return False
    process.stop()
    continue_later()
    return process.alive and not process.ended


def kill_watchdog(cluster: Cluster, awaits: int) -> bool:
    """Kill the watchdog (SIGKILL); its timer starts another one."""
    dying = cluster.watchdog
    dying.on_death(cluster.watchdog_died)
    dying.kill_after(awaits, partial(cluster.took_effect, "kill_watchdog"))
    return False


def machine_sleeps(cluster: Cluster, seconds: float) -> bool:
    """Suspend the whole machine: time passes, and nothing runs."""
    cluster.loop.pass_over(seconds)
    return True


def slurmctld_away(cluster: Cluster, seconds: float) -> bool:
    """Make slurmctld unavailable to every client for `seconds`."""
    away = cluster.slurm.faults.unavailable()
    away.__enter__()
    asyncio.get_running_loop().call_later(seconds, lambda: away.__exit__(None, None, None))
    return True


def slurmctld_crashes(cluster: Cluster, lose_newest: int, away_s: float) -> bool:
    """Kill slurmctld (SIGKILL), which has lost its newest jobs when it runs again."""
    for key in cluster.slurm.crash_slurmctld(lose_newest, away_s):
        cluster.model.forgotten(key.job_id)
        for ids in cluster.ids.values():
            if key.job_id in ids:
                ids.remove(key.job_id)
    return True


def request_lost(cluster: Cluster, verb: str) -> bool:
    """Lose the next request of that verb before it reaches slurmctld."""
    cluster.slurm.faults.lose_request(verb)
    return False


def reply_lost(cluster: Cluster, verb: str) -> bool:
    """Lose the next answer to that verb."""
    cluster.slurm.faults.lose_reply(verb)
    return False


def cut_short(cluster: Cluster, verb: str, jobs: int) -> bool:
    """Carry out the next request of that verb for its first jobs only."""
    cluster.slurm.faults.cut_short(verb, jobs)
    return False


def refused(cluster: Cluster, verb: str) -> bool:
    """Refuse the next request of that verb."""
    cluster.slurm.faults.refuse_next(verb, "Unable to contact slurm controller (connect failure)")
    return False


def slow(cluster: Cluster, verb: str, seconds: float, lasts_s: float) -> bool:
    """Make each call of `verb` take `seconds` longer, for `lasts_s` seconds."""
    faults = cluster.slurm.faults
    faults.slow(verb, seconds)
    before = faults.slowed[verb]

    def end() -> None:
        faults.slow(verb, 0.0)
        cluster.took_effect("slow", times=int(faults.slowed[verb] > before))

    asyncio.get_running_loop().call_later(lasts_s, end)
    return False


class InjectedError(OSError):
    """An error with which a story lets a background task fail. It is logged like a defect, but is none."""


def task_fails(cluster: Cluster, pick: int) -> bool:
    """Let one of the controller's background tasks fail with an error."""
    controller = cluster.controller
    if controller is not None:
        names = sorted(controller.tasks.failures.keys() - {"lease"})  # without it the controller ends, as it must
        if names:
            raised = partial(cluster.took_effect, "task_fails")
            cluster.process.fail(names[pick % len(names)], InjectedError("injected"), raised)
    return False


def agent_killed(cluster: Cluster, node: str, seconds: float) -> bool:
    """Disconnect the agent of a node for a while."""
    was_there = cluster.fleet.is_there(node)
    cluster.fleet.leave(node)
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.fleet.come(node))
    return was_there


def node_crashes(cluster: Cluster, node: str, seconds: float) -> bool:
    """Crash a node, with its jobs, for a while."""
    for expected in cluster.model.jobs.values():
        if expected.running and node in expected.nodes:
            expected.requeues += 1
    cluster.slurm.node_down(node)
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.slurm.node_resume(node))
    return True


def clock_jumps(cluster: Cluster, seconds: float, lasts_s: float) -> bool:
    """Set the clock of the controller's machine wrong, and correct it after a while."""
    cluster.clock.offset_s += seconds

    def right() -> None:
        cluster.clock.offset_s -= seconds

    asyncio.get_running_loop().call_later(lasts_s, right)
    return True


def disk_full(cluster: Cluster, seconds: float) -> bool:
    """Let no byte be added to the journal for a while, by a limit of SQLite."""
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.limit_journal(full=False))
    return cluster.limit_journal(full=True)


def disk_slow(cluster: Cluster, by_s: float, seconds: float) -> bool:
    """Let each write of the journal take `by_s` seconds for a while, in which the controller stands still."""
    asyncio.get_running_loop().call_later(seconds, lambda: cluster.slow_journal(0.0))
    return cluster.slow_journal(by_s)


def agent_lies(cluster: Cluster, node: str, seed: int, every_s: float, seconds: float) -> bool:
    """Let the agent of a node send reports that are not true for a while, among its true ones."""
    chance, loop = random.Random(seed), asyncio.get_running_loop()
    until_s = loop.time() + seconds

    def tell() -> None:
        cluster.fleet.lies(node, lambda runs, now_s: lie(chance, node, runs, now_s))
        if loop.time() < until_s:
            loop.call_later(every_s, tell)

    tell()
    return True


def journal_damaged(cluster: Cluster, seed: int, back_in_s: float) -> bool:
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
    return True


def journal_of_another_version(cluster: Cluster, version: int, back_in_s: float) -> bool:
    """Kill the controller, and give its journal the number of another version."""
    cluster.process.kill()
    set_version(cluster.settings.journal_path, version)
    cluster.restart_in(back_in_s)
    return True


def journal_rows_damaged(cluster: Cluster, seed: int, back_in_s: float) -> bool:
    """The controller is killed, and values in its journal can no longer be read when it starts again."""
    cluster.process.kill()
    cluster.restart_in(back_in_s)
    return damage_rows(cluster.settings.journal_path, seed)


FAULTS: dict[str, Fault] = {
    call.__name__: call
    for call in (
        kill_controller, stop_controller, kill_watchdog, machine_sleeps, slurmctld_away, slurmctld_crashes,
        request_lost, reply_lost, cut_short, refused, slow, task_fails, policy_fails, agent_killed, node_crashes,
        clock_jumps, disk_full, journal_damaged, journal_of_another_version,
        journal_rows_damaged, disk_slow, agent_lies, stop_watchdog, end_watchdog, stop_policy, end_policy, stop_agent,
    )
}  # fmt: skip
OF_CALLS = {
    "request_lost": FaultKind.REQUEST_LOST,
    "reply_lost": FaultKind.REPLY_LOST,
    "cut_short": FaultKind.CUT_SHORT,
    "refused": FaultKind.REFUSED,
}
"""Those that the next call of some verb has."""
