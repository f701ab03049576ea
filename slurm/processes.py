"""Processes, told apart from later ones with the same number; and programs that are run with a time limit."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
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


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process for ever: a pid is used again, a pid with its start time is not (until the next boot)."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot."""

    @staticmethod
    def of(pid: int) -> ProcessRef | None:
        """The process that has this pid now; None if there is none."""
        fields = _stat(pid)
        return None if fields is None else ProcessRef(pid, int(fields[_START_FIELD]))

    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[_START_FIELD]) == self.start_ticks and fields[_STATE_FIELD] not in "ZX"

    def send(self, sig: signal.Signals) -> bool:
        """Signal it, and never another that got its pid. False: it is gone."""
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
        """Whether it ended in time."""
        return wait_until(lambda: not self.alive(), timeout_s)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()  # the name, in parentheses, may hold anything


def command_name(pid: int) -> str:
    """Name of the program that a process runs (15 characters at most); empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> tuple[int, ...]:
    """Pids of a process's children now; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return tuple(found)


def all_pids() -> Iterator[int]:
    """Pids of every process of this machine (of this pid namespace) now."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def wait_until(condition: Callable[[], bool], timeout_s: float, interval_s: float = 0.02) -> bool:
    """Poll until the condition holds; False when it did not in time. It is looked at once more at the end."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return condition()
        time.sleep(interval_s)
    return True


@dataclass(frozen=True, slots=True)
class Identity:
    """A user to run a program as, with all groups."""

    name: str
    uid: int
    gid: int
    home: str
    groups: tuple[int, ...]

    @property
    def prefix(self) -> tuple[str, ...]:
        """Put before a command line. Not Popen's `user=`: that needs fork, which a process with gRPC in it does not survive."""
        groups = ",".join(str(group) for group in self.groups)
        return ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", f"--groups={groups}", "--")

    @staticmethod
    def of(name: str) -> Identity:
        """Look the user up. Raises CommandError if there is none."""
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            raise CommandError(f"user {name}: no such user on this machine; make one with useradd") from None
        return Identity(
            name, account.pw_uid, account.pw_gid, account.pw_dir, tuple(os.getgrouplist(name, account.pw_gid))
        )


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

    A program that takes too long is killed with all it has started. `env` is the whole environment; None = ours.
    """
    environment = {**(os.environ if env is None else env)}
    environment["PATH"] = search_path(environment.get("PATH", ""))
    if user is not None:
        environment |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    try:
        process = subprocess.Popen(  # a session of its own: Ctrl-C at the terminal is for us to handle, not for it
            (*user.prefix, *argv) if user else argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"{error.filename}: not there; `headway-minicluster status` lists what is missing"
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
        except BaseException as error:  # also KeyboardInterrupt: nothing that we started outlives us
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandError(f"{' '.join(argv)}: no answer in {timeout_s:g} s") from None
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def run_tied(
    *argv: str,
    stdin: str = "",
    check: bool = True,
    env: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> None:
    """Run a program that is killed with us: one that builds must not go on when whoever records it has died."""
    run("setpriv", "--pdeathsig", "KILL", "--", *argv, stdin=stdin, check=check, env=env, timeout_s=timeout_s)


def search_path(path: str) -> str:
    """PATH with the folders of administrators' programs, which a login may lack."""
    folders = [folder for folder in path.split(":") if folder]
    return ":".join(folders + [folder for folder in _SYSTEM_PATH if folder not in folders])


def failure_text(argv: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> str:
    """One sentence on a program that failed, with what it said."""
    said = (done.stderr.strip() or done.stdout.strip() or "it said nothing")[-2000:]
    return f"{' '.join(argv)}: failed with status {done.returncode}: {said}"
