"""Faults that a story injects into real processes. Each function is the verb of a step; the healer ends it after its time."""

from __future__ import annotations

import contextlib
import errno
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurm.errors import NotRunningError
from slurm.minicluster.host import cgroups
from slurm.processes import ProcessRef, all_pids, children, command_name
from tests.campaign.real.faults.programs import lose, make_slow
from tests.campaign.real.scene import Scene

Fault = Callable[..., None]


class FaultNotPossibleError(Exception):
    """The fault needs something that this machine lacks; the text is the reason."""


_FILLER = "filler"
_DAMAGED_BYTES = 20
REGISTER_S = 4.0
"""Time within which nodes register with a new slurmctld."""


def kill_controller(scene: Scene, back_in_s: float) -> None:
    """kill -9; systemd starts another one."""
    _kill(scene, "controller", back_in_s)


def stop_controller(scene: Scene, seconds: float) -> None:
    """SIGSTOP, and SIGCONT after a while."""
    scene.controller_stopped = True

    def go_on() -> None:
        scene.world.send("controller", signal.SIGCONT)
        scene.controller_stopped = False

    scene.world.send("controller", signal.SIGSTOP)
    scene.world.healer.later(seconds, go_on)


def kill_policy(scene: Scene, back_in_s: float) -> None:
    """kill -9 of the policy server; systemd starts another one."""
    _kill(scene, "policy", back_in_s)


def stop_policy(scene: Scene, seconds: float) -> None:
    """SIGSTOP of the policy server, and SIGCONT."""
    _stop(scene, "policy", seconds)


def rogue_policy(scene: Scene, kind: str, seconds: float) -> None:
    """Serve another policy with invalid answers at the address for a while."""
    world = scene.world
    if "policy" in world.down:
        return
    world.kill("policy")
    Path(world.headway.policy_address.removeprefix("unix://")).unlink(missing_ok=True)
    world.start_rogue(kind)

    def back() -> None:
        world.headway.stop("rogue", signal.SIGKILL)
        world.start("policy")

    world.healer.later(seconds, back)


def kill_watchdog(scene: Scene, back_in_s: float) -> None:
    """kill -9 of the watchdog; its timer starts another one."""
    _kill(scene, "watchdog", back_in_s)


def stop_watchdog(scene: Scene, seconds: float) -> None:
    """SIGSTOP of the watchdog, and SIGCONT."""
    _stop(scene, "watchdog", seconds)


def kill_agent(scene: Scene, node: str, back_in_s: float) -> None:
    """kill -9 of the agent of a node; systemd starts another one."""
    scene.world.agent(node, signal.SIGKILL)
    scene.world.healer.later(back_in_s, lambda: scene.world.start_agent(node))


def stop_agent(scene: Scene, node: str, seconds: float) -> None:
    """SIGSTOP of the agent of a node, and SIGCONT."""
    scene.world.agent(node, signal.SIGSTOP)
    scene.world.healer.later(seconds, lambda: scene.world.agent(node, signal.SIGCONT))


def stop_slurmctld(scene: Scene, seconds: float) -> None:
    """SIGSTOP of slurmctld, and SIGCONT."""
    scene.disturb(None, seconds)
    with contextlib.suppress(NotRunningError):
        scene.world.cluster.pause("slurmctld")
    scene.world.healer.later(seconds, scene.world.resume_slurmctld)


def restart_slurmctld(scene: Scene, back_in_s: float) -> None:
    """systemctl stop slurmctld, and start after a while."""
    scene.disturb(None, back_in_s + 2.0)
    scene.asks_nodes = True  # a job whose start was under way counts as running, and may have no process
    with contextlib.suppress(NotRunningError):
        scene.world.cluster.resume("slurmctld")
        scene.world.cluster.stop_slurmctld()
    # The stop takes a while. Until nodes have registered with the new slurmctld, it refuses jobs as never runnable.
    scene.disturb(None, back_in_s + REGISTER_S)
    scene.world.healer.later(back_in_s, scene.world.start_slurmctld)


def kill_slurmd(scene: Scene, node: str, back_in_s: float) -> None:
    """kill -9 of the slurmd of a node; systemd starts another one."""
    scene.disturb(node, back_in_s)
    scene.asks_nodes = True
    with contextlib.suppress(NotRunningError):
        scene.world.cluster.kill_slurmd(node)
    scene.world.healer.later(back_in_s, lambda: scene.world.start_slurmd(node))


def stop_slurmd(scene: Scene, node: str, seconds: float) -> None:
    """SIGSTOP of the slurmd of a node, and SIGCONT."""
    scene.disturb(node, seconds)
    with contextlib.suppress(NotRunningError):
        scene.world.cluster.pause(node)
    scene.world.healer.later(seconds, lambda: scene.world.resume_slurmd(node))


def kill_slurmstepd(scene: Scene, pick: int) -> None:
    """kill -9 of the slurmstepd of a job and of all that it has started, as when a node has run out of memory."""
    found = sorted(_stepds(scene), key=lambda pair: pair[1].pid)
    if not found:
        return
    job_id, stepd = found[pick % len(found)]
    expected = scene.model.jobs[job_id]
    scene.asks_nodes = True
    for ref in (*_descendants(stepd.pid), stepd):
        freezer = cgroups.freezer_of(ref.pid)
        ref.send(signal.SIGKILL)
        if freezer is not None:  # the kernel thaws a process of a suspended job, too, if it kills it for want of memory
            cgroups.thaw([freezer])
    scene.note(f"killed slurmstepd {stepd.pid} of {job_id}")
    # Slurm notices when it next asks the node
    expected.killed_s += [time.time()]


def disk_full(scene: Scene, seconds: float) -> None:
    """No byte can be added to the files of the controller for a while."""
    filler = scene.world.headway.folder / "state" / _FILLER
    scene.world.disk_full_until_s = float("inf")
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            _fill(file.write, bytes(size))

    def empty() -> None:
        filler.unlink(missing_ok=True)
        scene.world.disk_full_until_s = time.time()

    scene.world.healer.later(seconds, empty)


def slow(scene: Scene, program: str, by_s: float, seconds: float) -> None:
    """Make each call of a Slurm program by the controller take longer for a while."""
    make_slow(scene.world.programs, program, by_s)
    scene.slow_by_s = max(scene.slow_by_s, by_s)

    def usual() -> None:
        make_slow(scene.world.programs, program, 0.0)
        scene.slow_by_s = 0.0

    scene.world.healer.later(seconds, usual)


def request_lost(scene: Scene, program: str) -> None:
    """The next request of the controller through that program does not reach slurmctld."""
    lose(scene.world.programs, program, "request_lost")


def answer_lost(scene: Scene, program: str) -> None:
    """The next answer to the controller through that program is lost: slurmctld has done it."""
    lose(scene.world.programs, program, "answer_lost")


def disk_slow(scene: Scene, bytes_per_s: float, seconds: float) -> None:
    """Let the disk of the controller take so few bytes in a second for a while. Raises FaultNotPossibleError."""
    disk = scene.world.slow_disk
    if disk.missing:
        raise FaultNotPossibleError(disk.missing)
    before = len(disk.waits_s)
    disk.slow(bytes_per_s)
    scene.disk_is_slow = True

    def usual() -> None:
        disk.usual()
        scene.disk_is_slow = False
        waits_s = disk.waits_s[before:]
        scene.effects["writes to a slow disk"] += len(waits_s)
        scene.effects["seconds in which a write waited"] += round(sum(waits_s))
        scene.note(f"{len(waits_s)} writes waited {sum(waits_s):.2f} s for the slow disk")

    scene.world.healer.later(seconds, usual)


def agent_lies(scene: Scene, node: str, seed: int, every_s: float, seconds: float) -> None:
    """Let an agent that lies take the place of a node's agent for a while; then the node's agent comes back."""
    world = scene.world
    if node in world.liars:
        return
    world.start_liar(node, seed, every_s)

    def back() -> None:
        told = world.end_liar(node)
        scene.effects["lies"] += told.lies
        scene.effects["lies acknowledged"] += told.acknowledged
        scene.note(f"the lying agent of {node}: {told}")
        world.start_agent(node)

    world.healer.later(seconds, back)


def journal_damaged(scene: Scene, seed: int, running: bool, back_in_s: float) -> None:
    """Overwrite bytes of the controller's journal, while it is down or while it runs, and let it start anew after a while."""
    if not running:
        scene.world.kill("controller")
    overwrite_bytes(scene.world.headway.folder / "state", seed)

    def start_anew() -> None:
        scene.world.kill("controller")
        scene.world.start("controller")

    scene.world.healer.later(back_in_s, start_anew)


def overwrite_bytes(state_dir: Path, seed: int) -> None:
    """Overwrite some bytes of a journal and of its write-ahead log where they are: no file changes its size or its owner."""
    chance = random.Random(seed)
    for path in (state_dir / "journal.sqlite", state_dir / "journal.sqlite-wal"):
        size = path.stat().st_size if path.exists() else 0
        if size:
            with path.open("r+b", buffering=0) as file:
                for _ in range(_DAMAGED_BYTES):
                    file.seek(chance.randrange(size))
                    file.write(bytes([chance.randrange(256)]))


def _kill(scene: Scene, name: str, back_in_s: float) -> None:
    scene.world.kill(name)
    scene.world.healer.later(back_in_s, lambda: scene.world.start(name))


def _stop(scene: Scene, name: str, seconds: float) -> None:
    scene.world.send(name, signal.SIGSTOP)
    scene.world.healer.later(seconds, lambda: scene.world.send(name, signal.SIGCONT))


def _fill(write: Callable[[bytes], object], block: bytes) -> None:
    """Write blocks until the disk is full."""
    try:
        while True:
            write(block)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def _stepds(scene: Scene) -> Iterator[tuple[str, ProcessRef]]:
    """Yield the jobs of the story with the slurmstepd of their batch script: it is the parent of a job.sh in their folder."""
    for pid in all_pids():
        with contextlib.suppress(OSError):
            ref = ProcessRef.of(pid)
            if ref is None or not command_name(pid).startswith("slurmstepd"):
                continue
            for child in children(pid):
                job_id = _job_of(scene, child)
                if job_id in scene.model.jobs:
                    yield job_id, ref


def _job_of(scene: Scene, pid: int) -> str:
    """Return the job of a batch script of this story; empty for any other process."""
    if Path(f"/proc/{pid}/cwd").readlink() != scene.folder:
        return ""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    if "SLURM_ARRAY_JOB_ID" in variables:
        return f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
    return variables.get("SLURM_JOB_ID", "")


def _descendants(pid: int) -> Iterator[ProcessRef]:
    for child in children(pid):
        ref = ProcessRef.of(child)
        yield from _descendants(child)
        if ref is not None:
            yield ref


FAULTS: dict[str, Fault] = {
    call.__name__: call
    for call in (
        kill_controller, stop_controller, kill_policy, stop_policy, rogue_policy, kill_watchdog, stop_watchdog, kill_agent,
        stop_agent, stop_slurmctld, restart_slurmctld, kill_slurmd, stop_slurmd, kill_slurmstepd, disk_full, slow, request_lost,
        answer_lost, disk_slow, agent_lies, journal_damaged,
    )
}  # fmt: skip
