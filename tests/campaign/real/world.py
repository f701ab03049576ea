"""The cluster of all stories: a real Slurm with accounting, and a Headway whose controller runs as SlurmUser."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from controller.base.lease import is_stale, read_lease
from slurm.demo.run import jobpython
from slurm.errors import CommandError, NotRunningError
from slurm.minicluster.cluster import MiniCluster
from slurm.minicluster.spec import ACCOUNT, PartitionSpec
from slurm.testbed.installation import Installation
from slurm.testbed.programs import program
from tests.campaign.real.faults.lying_agent import Told, end_liar, start_liar
from tests.campaign.real.faults.programs import install_programs
from tests.campaign.real.faults.slow_disk import SlowDisk, build_slow_disk
from tests.campaign.real.healer import Healer
from tests.campaign.real.story import FAST_NODE, GPUS, NODES, USERS

MANAGED, UNMANAGED = "dl", "plain"
"""Partitions, over the same nodes."""
STALE_AFTER_S = 8.0
_STATE_MIB = 64
_COMMAND_S = 25.0
_FULL_DISK = re.compile(r"cannot be opened: (database or disk is full|disk I/O error)")
"""Messages of a controller that starts on a full disk: of its journal, or its store of profiles. SQLite has an I/O error where it
cannot enlarge the file of its shared memory."""
_ENDS_WITHIN_S = 15.0
"""Time in which a process on a busy machine ends after it has seen a full disk."""
_SHOWN = 1200
"""Last characters of a log in the report of a violation."""
_BEGUN = re.compile(r"\] started ")
"""Line that the controller logs once it handles signals. On a busy machine it imports its modules for half a minute before."""
_OPEN_PATH = Path(jobpython.__file__).with_name("open_path.sh")
_ROGUE = Path(__file__).parents[2] / "faults" / "rogue_policy.py"
_SETTINGS = {
    "slurm_client": "command-line",
    "slurm_timeout_s": 5.0,
    "policy_deadline_s": 1.0,
    "stale_after_s": STALE_AFTER_S,
    "heartbeat_interval_s": 0.5,
    "poll_interval_s": 3.0,
    "start_grace_s": 5.0,
    "agents_report_interval_s": 1.0,
    "agents_window_s": 5.0,
    "preemption_within_s": 6.0,
    "preemption_still_s": 20.0,
    "preemption_min_run_s": 2.0,
    "preemption_cooldown_s": 2.0,
    "preemption_moves_per_hour": 1000,
    "preemption_budget_per_hour": 100_000,
}


class Answer(Enum):
    """Result of a user's command."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "no answer: it may have been carried out"


@dataclass
class World:
    """Invariant: a process that ends without a fault of the story is recorded in `ends`, and started again."""

    cluster: MiniCluster
    headway: Installation
    programs: Path
    """Folder of the controller's scontrol, squeue and scancel, to which faults can be added."""
    slow_disk: SlowDisk
    """Lets the controller's writes to its files take long."""
    policy: str = "fifo-skip"
    liars: set[str] = field(default_factory=set)
    """Nodes on which an agent that lies has the place of the node's agent."""
    down: set[str] = field(default_factory=set)
    """Processes that a fault keeps away."""
    ends: list[str] = field(default_factory=list)
    """Ends that no fault explains."""
    alone_s: list[float] = field(default_factory=list)
    """Times at which the lease was stale."""
    disk_full_until_s: float = 0.0
    """A fault has filled the disk of the controller: one that starts until then ends at once, and is started again."""
    _logged: dict[str, int] = field(default_factory=dict)
    """Characters in the log of each process at its newest start."""

    def __post_init__(self) -> None:
        """Start the healer."""
        self.healer = Healer(self._look)
        self.healer.start()

    # ---- processes of Headway

    def start(self, name: str) -> None:
        """Start the controller, the watchdog, the policy server or the other policy server, unless it runs."""
        self.down.discard(name)
        process = self.headway.processes.get(name)
        if process is not None and process.poll() is None:
            return
        self._logged[name] = len(self.headway.log(name))
        env = self.slow_disk.environment if name == "controller" else None
        self.headway.start(name, self._command(name), env)

    def _command(self, name: str) -> list[str]:
        config = ("--config", str(self.headway.config))
        match name:
            case "controller":
                return [*program("headway-controller"), "run", *config]
            case "watchdog":
                return [*program("headway-controller"), "watchdog", *config, "--every", "1.0"]
            case "policy":
                return self._policy_command(self.policy, self.headway.policy_address)
            case _:
                return self._policy_command("fifo-skip", self.other_address)

    def start_rogue(self, kind: str) -> None:
        """Start a policy server with invalid answers at the address of the policy server."""
        self.headway.start("rogue", [sys.executable, str(_ROGUE), self.headway.policy_address, kind])

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int | None:
        """End a process, if it runs, and keep it away until `start`. Return its status; None if it did not run."""
        process = self.headway.processes.get(name)
        if process is None or process.poll() is not None:
            return None
        self.down.add(name)
        process.send_signal(signal.SIGCONT)
        return self.headway.stop(name, number)

    def end_politely(self, name: str) -> int | None:
        """SIGTERM, as systemd sends it. Return the status; None if the process did not run, or had not begun to handle signals.

        A controller gets its usual disk back before: it writes at its end, and would take longer than systemd lets it.
        """
        if name == "controller":
            self.slow_disk.usual()
        status = self.kill(name, signal.SIGTERM)
        begun = _BEGUN.search(self._log(name))
        return None if status == -signal.SIGTERM and not begun else status

    def last_log(self, name: str) -> str:
        """Return the end of the log of a process, since its newest start."""
        return self._log(name)[-_SHOWN:]

    def _log(self, name: str) -> str:
        return self.headway.log(name)[self._logged.get(name, 0) :]

    def reload(self, **settings: object) -> None:
        """Change settings, and let the controller read them again: systemd reloads no service that is still starting."""
        self.headway.configure(self.cluster, **settings)
        if "controller" not in self.down and self.headway.try_ask("status") is not None:
            self.send("controller", signal.SIGHUP)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process, if it runs."""
        process = self.headway.processes.get(name)
        if process is not None:
            process.send_signal(number)

    @property
    def other_address(self) -> str:
        """Address of the other policy server, for swaps."""
        return f"unix://{self.headway.runtime_dir}/other.sock"

    def lease_is_fresh(self) -> bool:
        """Return whether the lease is fresh."""
        return not is_stale(read_lease(self.headway.runtime_dir / "lease"), time.time())

    def _policy_command(self, policy: str, address: str) -> list[str]:
        Path(address.removeprefix("unix://")).unlink(missing_ok=True)
        return [*program("headway-policy"), "serve", "--policy", policy, "--listen", address]

    def _look(self) -> None:
        if not self.lease_is_fresh():
            self.alone_s.append(time.time())
        for name in ("controller", "watchdog", "policy", "other"):
            process = self.headway.processes.get(name)
            status = process.poll() if process is not None else None
            if status is None or name in self.down:
                continue
            on_full_disk = _FULL_DISK.search(self._log(name))
            if not on_full_disk or time.time() > self.disk_full_until_s + _ENDS_WITHIN_S:
                self.ends.append(f"the {name} ended with status {status}: {self.last_log(name)}")
            self.start(name)

    # ---- agents and Slurm

    def agent(self, node: str, number: signal.Signals) -> None:
        """Send a signal to the agent of a node, if it runs."""
        agent = self.cluster.program_on(node, "headway-agent")
        if agent is not None:
            agent.send(number)

    def start_agent(self, node: str) -> None:
        """Start the agent of a node, unless it runs or another has its place."""
        if node not in self.liars and self.cluster.program_on(node, "headway-agent") is None:
            self.headway.agents.start(self.cluster, node, wait=False)

    def start_liar(self, node: str, seed: int, every_s: float) -> None:
        """Kill the agent of a node, and start one that lies, with its settings and its credential."""
        self.liars.add(node)
        self.agent(node, signal.SIGKILL)
        start_liar(self.cluster, node, self.headway.agents.config(node), seed, every_s)

    def end_liar(self, node: str) -> Told:
        """Kill it, and return what it has told; an error of its own is one of `ends`. The node has no agent then."""
        told = end_liar(self.cluster, node, self.headway.agents.config(node))
        self.liars.discard(node)
        if told.problem:
            self.ends.append(f"the campaign itself: the lying agent of {node}: {told.problem}")
        return told

    def start_slurmctld(self) -> None:
        """Start slurmctld, unless it runs."""
        with suppress(NotRunningError):
            if self.cluster.slurmctld_pid:
                return
        self.cluster.start_slurmctld()

    def start_slurmd(self, node: str) -> None:
        """Start the slurmd of a node, unless it runs."""
        with suppress(NotRunningError):
            if self.cluster.slurmd_pid(node):
                return
        self.cluster.start_slurmd(node)

    def resume_slurmctld(self) -> None:
        """SIGCONT, if it runs."""
        with suppress(NotRunningError):
            self.cluster.resume("slurmctld")

    def resume_slurmd(self, node: str) -> None:
        """SIGCONT, if it runs."""
        with suppress(NotRunningError):
            self.cluster.resume(node)

    def user(self, user: str | None, *argv: str, cwd: Path | None = None) -> tuple[Answer, str]:
        """Run a command of Slurm as a user, or as root. Return the result and the output."""
        try:
            done = self.cluster.run(*argv, user=user, check=False, timeout=_COMMAND_S, cwd=cwd)
        except CommandError as error:
            return Answer.UNKNOWN, str(error)
        text = (done.stdout + done.stderr).strip()
        if done.returncode == 0:
            return Answer.DONE, done.stdout.strip()
        lost = any(
            words in text for words in ("imed out", "Unable to contact", "ommunication", "Zero Bytes", "onnection")
        )
        return Answer.UNKNOWN if lost else Answer.REFUSED, text

    def operator(self, *words: str) -> tuple[bool, str]:
        """Run `headway` as root. Return whether it was carried out, and its output; an error of its own is one of `ends`."""
        done = self.headway.headway_here(*words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            self.ends.append(f"headway {' '.join(words)}: {done.exception!r}")
        return done.exit_code == 0, done.output.strip()


@contextmanager
def real_world(name: str) -> Iterator[World]:
    """Boot cluster and Headway; remove everything at the end."""
    account = pwd.getpwnam("slurm")
    with ExitStack() as stack:
        settings = {"controller_uid": account.pw_uid}
        headway = stack.enter_context(Installation.prepare(name, with_agents=True, agent_settings=settings))
        programs = install_programs(headway.folder / "programs")
        stack.enter_context(_small_disk(headway.folder / "state", account))
        slow_disk = build_slow_disk(headway.folder / "slow-disk", headway.folder / "state")
        spec = headway.cluster_spec(
            name=name,
            nodes=NODES,
            gpus=GPUS,
            accounting=True,
            partitions=(PartitionSpec(MANAGED), PartitionSpec(UNMANAGED)),
            features={FAST_NODE: ("fast",)},
        )
        cluster = stack.enter_context(MiniCluster(spec))
        for user in USERS:
            cluster.sacctmgr("add", "user", user, f"Account={ACCOUNT}")
        shutil.copy(Path(__file__).with_name("job.sh"), cluster.files.work)
        headway.configure(cluster, slurm_bin=str(programs), **_SETTINGS)
        for path in (headway.folder, headway.runtime_dir, programs, slow_disk.folder):
            os.chown(path, account.pw_uid, account.pw_gid)
        headway.wrap = _as_user(headway.folder / "as_user.sh", account)
        world = World(cluster, headway, programs, slow_disk)
        stack.callback(_end, world)
        for process in ("policy", "other", "controller", "watchdog"):
            world.start(process)
        headway.wait(world.lease_is_fresh, "controller")
        headway.agents.start_all(cluster)
        yield world


def _end(world: World) -> None:
    world.healer.end()
    world.slow_disk.usual()
    for process in reversed(list(world.headway.processes)):
        world.send(process, signal.SIGCONT)
        world.headway.stop(process)


@contextmanager
def _small_disk(folder: Path, account: pwd.struct_passwd) -> Iterator[None]:
    """Mount a small file system of that user, which a fault can fill."""
    folder.mkdir()
    options = f"size={_STATE_MIB}m,mode=700,uid={account.pw_uid},gid={account.pw_gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _as_user(script: Path, account: pwd.struct_passwd) -> tuple[str, ...]:
    """Return the words that run a command as that user, in a mount namespace in which the user can read this Python."""
    opened = [
        f"sh '{_OPEN_PATH}' {' '.join(repr(str(path)) for path in (closed, *folders))}"
        for closed, folders in jobpython.closed_folders(jobpython.python_folders()).items()
    ]
    become = f'exec setpriv --reuid={account.pw_uid} --regid={account.pw_gid} --init-groups -- "$@"'
    script.write_text("\n".join(["set -e", *opened, become, ""]))
    return ("unshare", "--mount", "sh", str(script))
