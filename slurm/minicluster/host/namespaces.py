"""Hosts of the mini-cluster: each is a set of namespaces that one process holds, and in which daemons are started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import BootError
from slurm.minicluster.host.network import NETNS_DIR
from slurm.processes import ProcessRef, all_pids, children, command_line, command_name, wait_until

_HERE = Path(__file__).parent
_ENDING_TIMEOUT_S = 60.0
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals to set to their default action: Python ignores some, a caller may ignore others, and jobs would inherit that."""


@dataclass(frozen=True, slots=True)
class WaitingHolder:
    """A holder that waits for permission to go on: it has created nothing yet, and ends when this process ends."""

    host: str
    ref: ProcessRef
    go: int
    """Write end of the pipe to its standard input."""
    ready: int
    """Read end of the pipe from its standard output."""
    log: Path

    def proceed(self) -> None:
        """Let it create the namespaces. Its process must be in the record before."""
        with contextlib.suppress(BrokenPipeError):  # it has ended: await_ready reports that
            os.write(self.go, b"go\n")

    def await_ready(self, deadline: float) -> None:
        """Wait until the host is set up. Raises BootError with the end of its log."""
        heard = b""
        while not heard.endswith(b"ready\n"):
            readable, _, _ = select.select([self.ready], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self.ready, 100) if readable else b""
            if not piece:
                raise BootError(f"host {self.host}: its namespaces did not come up: {tail(self.log)}")
            heard += piece

    def close(self) -> None:
        """Close the ends of the pipes that are in this process."""
        os.close(self.go)
        os.close(self.ready)


def start_holder(host: str, netns: str, directory: Path, cgroup: str) -> WaitingHolder:
    """Start the process that will hold the namespaces of a host."""
    go_read, go_write = os.pipe()
    ready_read, ready_write = os.pipe()
    log = directory / "log" / f"{host}.init.log"
    argv = ["sh", str(_HERE / "holder.sh"), netns, "sh", str(_HERE / "node-init.sh"), host, str(directory), cgroup]
    actions = [
        (os.POSIX_SPAWN_DUP2, go_read, 0),
        (os.POSIX_SPAWN_DUP2, ready_write, 1),
        (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
    ]
    try:
        pid = os.posix_spawnp(
            "sh", argv, _environment(), file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
        )
    finally:
        os.close(go_read)
        os.close(ready_write)
    ref = ProcessRef.of(pid)
    assert ref is not None, "a child keeps its entry in /proc until its parent has waited for it"
    return WaitingHolder(host, ref, go_write, ready_read, log)


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in {"LANG", "LC_ALL", "TZ"}}
    return kept | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def daemon_environment(slurm_conf: Path) -> Mapping[str, str]:
    """Return the environment of the daemons: of the caller's variables they get only language and time zone."""
    return _environment() | {"SLURM_CONF": str(slurm_conf)}


def init_pid(holder: ProcessRef) -> int | None:
    """Return the pid of process 1 of the namespaces, as this process sees it; None when the host is down."""
    if not holder.alive():
        return None
    return next(iter(children(holder.pid)), None)


def entering(init: int, cgroup: str) -> tuple[str, ...]:
    """Return the command words that run what follows in the namespaces and cgroups of the host with that process 1."""
    enter = ("sh", str(_HERE / "enter.sh"), cgroup)
    return (
        "nsenter",
        f"--target={init}",
        "--mount",
        "--uts",
        "--ipc",
        "--net",
        "--pid",
        "--cgroup",
        "--root",
        "--",
        *enter,
    )


def daemon(holder: ProcessRef, program: str) -> ProcessRef | None:
    """Return the daemon of that name on a host; None if it does not run.

    Daemons are children of process 1 of their namespaces, so no pid files are needed.
    """
    init = init_pid(holder)
    for pid in children(init) if init is not None else ():
        ref = ProcessRef.of(pid)
        if ref is not None and ref.alive() and command_name(pid) == program:
            return ref
    return None


def started_program(holder: ProcessRef, program: str, words: Collection[str] = ()) -> ProcessRef | None:
    """Return the program of that name on a host, with these words among its arguments; None if it does not run.

    It is found by its command line: the kernel cuts names of processes to 15 characters, and a script may have its interpreter's.
    """
    init = init_pid(holder)
    for pid in children(init) if init is not None else ():
        ref = ProcessRef.of(pid)
        line = command_line(pid)
        if ref is not None and ref.alive() and program in (Path(word).name for word in line) and {*words} <= {*line}:
            return ref
    return None


def end_holder(holder: ProcessRef) -> None:
    """Kill a host, and with it everything that runs there. Raises BootError when that takes too long."""
    init = init_pid(holder)
    init_ref = ProcessRef.of(init) if init is not None else None
    holder.send(signal.SIGKILL)
    for ref in (holder, init_ref):
        if ref is not None and not ref.wait_gone(_ENDING_TIMEOUT_S):
            raise BootError(
                f"process {ref.pid} does not end after SIGKILL; /proc/{ref.pid}/stack shows what it waits for"
            )
    with contextlib.suppress(ChildProcessError):  # it is the child of an earlier process
        os.waitpid(holder.pid, os.WNOHANG)


def end_processes_in(netns: str) -> None:
    """Kill every process in a network namespace of a cluster, also processes that other programs have started there."""
    path = NETNS_DIR / netns
    if not path.exists():
        return
    wanted = (path.stat().st_dev, path.stat().st_ino)

    def end_all() -> bool:
        found = [ref for pid in all_pids() if (ref := _inside(pid, wanted)) is not None]
        for ref in found:
            ref.send(signal.SIGKILL)
        return not found

    if not wait_until(end_all, _ENDING_TIMEOUT_S):
        raise BootError(f"{path}: its processes do not end after SIGKILL")


def _inside(pid: int, wanted: tuple[int, int]) -> ProcessRef | None:
    ref = ProcessRef.of(pid)
    try:
        found = Path(f"/proc/{pid}/ns/net").stat()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or is a zombie
        return None
    return ref if (found.st_dev, found.st_ino) == wanted else None


def tail(path: Path, lines: int = 5) -> str:
    """Return the end of a log for the text of an error: its fatal lines, else its errors, else its last lines."""
    try:
        text = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return f"{path} does not exist"
    fatal = [line for line in text if "fatal" in line]
    bad = fatal or [line for line in text if "error" in line] or text
    return f"{path}: " + (" | ".join(bad[-lines:]) or "empty")
