"""References to processes that are safe against reuse of their pids, and programs that run with a time limit."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import CommandError, PrerequisiteError

COMMAND_TIMEOUT_S = 60.0
"""Longest time for a program that answers at once on an idle machine."""
_SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_STATE_FIELD = 0  # fields of /proc/PID/stat after the command's name
_START_FIELD = 19
_PAUSE_GROWS = 1.2
_PAUSE_MOST_S = 0.25
_CONNECT_S = 5.0
_UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'
"""Script of sh: run a command if the process $0 has not ended before the command was tied to it."""


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process. The kernel uses a pid again after its process has ended, but not together with the same start time."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot."""

    @staticmethod
    def of(pid: int) -> ProcessRef | None:
        """Return the process that has this pid now; None if there is none."""
        fields = _stat(pid)
        return None if fields is None else ProcessRef(pid, int(fields[_START_FIELD]))

    def alive(self) -> bool:
        """Return whether the process runs; a zombie does not."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[_START_FIELD]) == self.start_ticks and fields[_STATE_FIELD] not in "ZX"

    def send(self, sig: signal.Signals) -> bool:
        """Send a signal, never to a later process with the same pid. Return False when the process has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():  # read after the handle was opened: the handle cannot change its process any more
                return False
            signal.pidfd_send_signal(handle, sig)
        except ProcessLookupError:
            return False
        else:
            return True
        finally:
            os.close(handle)

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait for its end. Return False when it has not ended in time."""
        return wait_until(lambda: not self.alive(), timeout_s)


def _stat(pid: int) -> list[str] | None:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return line[line.rindex(b")") + 2 :].decode().split()  # the name in parentheses may contain any byte


def command_name(pid: int) -> str:
    """Return the name of the program that a process runs, at most 15 characters; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def command_line(pid: int) -> tuple[str, ...]:
    """Return the words of the command line of a process; empty when the process has ended."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(word.decode(errors="replace") for word in line.rstrip(b"\0").split(b"\0"))


def children(pid: int) -> tuple[int, ...]:
    """Return the pids of the children of a process; empty when it has ended."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return tuple(found)


def all_pids() -> Iterator[int]:
    """Yield the pids of all processes of this machine (of this pid namespace)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def wait_until(
    condition: Callable[[], bool], timeout_s: float, interval_s: float = 0.02, most_s: float = _PAUSE_MOST_S
) -> bool:
    """Poll until the condition holds. Return False when it did not hold in time, nor in a last check at the end.

    The pauses grow from `interval_s` to `most_s`: many conditions start a program, and long waits would cost most of a core.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = interval_s
    while not condition():
        if time.monotonic() >= deadline:
            return condition()
        time.sleep(pause_s)
        pause_s = min(_PAUSE_GROWS * pause_s, max(interval_s, most_s))
    return True


def accepts(path: Path) -> bool:
    """Return whether a server accepts connections on this Unix socket. Its file is there a moment earlier, when a client is
    still refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Identity:
    """A user under whom a program runs, with all groups."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[int, ...]

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before a command line. Popen's `user=` is not used: it needs fork, which is not safe beside gRPC."""
        groups = ",".join(str(group) for group in self.groups)
        return ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", f"--groups={groups}", "--")

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a login sets for the user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    @staticmethod
    def of(name: str) -> Identity:
        """Look up a user. Raises CommandError when there is no such user."""
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            raise CommandError(f"user {name}: no such user on this machine; create it with useradd") from None
        groups = tuple(os.getgrouplist(name, account.pw_gid))
        return Identity(name, account.pw_uid, account.pw_gid, account.pw_dir, account.pw_shell or "/bin/sh", groups)


def run(
    *argv: str,
    stdin: str = "",
    timeout_s: float = COMMAND_TIMEOUT_S,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: Identity | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises CommandError when it fails (unless check is off) or takes too long.

    A program that takes too long is killed, with all processes that it has started. `env` is the whole environment; None means the
    environment of this process.
    """
    environment = {**(os.environ if env is None else env)}
    environment["PATH"] = search_path(environment.get("PATH", ""))
    if user is not None:
        environment |= user.environment
    try:
        process = subprocess.Popen(  # a session of its own, so that Ctrl-C at the terminal reaches only this process
            (*user.prefix, *argv) if user else argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",  # such as a job's name in Latin-1, which scontrol prints as it is
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"{error.filename}: no such program; `headway-minicluster status` lists what is missing"
        ) from None
    done = _finish(process, argv, stdin, timeout_s)
    if check and done.returncode != 0:
        raise CommandError(failure_text(argv, done))
    return done


def _finish(
    process: subprocess.Popen[str], argv: tuple[str, ...], stdin: str, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Wait for the end of a program; kill its session when it takes too long or the caller is interrupted."""
    with process:
        try:
            stdout, stderr = process.communicate(stdin, timeout_s)
        except BaseException as error:  # also KeyboardInterrupt: no process that was started here outlives this one
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandError(f"{' '.join(argv)}: no answer in {timeout_s:g} s") from None
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def tie() -> tuple[str, ...]:
    """Return words before a command line: the kernel kills its process together with this one (with the thread that has started
    it, if that ends before), also if that happens before setpriv runs."""
    return ("setpriv", "--pdeathsig=KILL", "--", "sh", "-c", _UNLESS_ORPHANED, str(os.getpid()))


def run_tied(
    *argv: str,
    stdin: str = "",
    check: bool = True,
    env: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> None:
    """Run a program that the kernel kills with this process: nothing may be built after the process that records it has ended."""
    run(*tie(), *argv, stdin=stdin, check=check, env=env, timeout_s=timeout_s)


def search_path(path: str) -> str:
    """Return PATH with the folders of administrators' programs, which a login may lack."""
    folders = [folder for folder in path.split(":") if folder]
    return ":".join(folders + [folder for folder in _SYSTEM_PATH if folder not in folders])


def failure_text(argv: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> str:
    """Return one sentence about a program that failed, with its output."""
    said = (done.stderr.strip() or done.stdout.strip() or "no output")[-2000:]
    return f"{' '.join(argv)}: failed with status {done.returncode}: {said}"
