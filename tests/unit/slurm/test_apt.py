"""Installations with apt-get: what the machine has stays, no service starts, and policy-rc.d is afterwards as before.

apt-get, dpkg-query and systemctl are scripts, which note their arguments and may wait for the test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm.apt import allow_service_starts, install, no_service_starts
from slurm.errors import CommandError
from slurm.foreign_slurm import foreign_slurm
from slurm.processes import wait_until

_DEADLINE_S = 60.0
_NOBODY = 65534
# The unpacking begins with a copy of policy-rc.d, and does not end before the test says so.
_APT = """#!/bin/sh
echo "$@" >>{calls}
case "$*" in
*--download-only*) [ ! -e {folder}/no-lists ] || exit 100 ;;
*update*) rm -f {folder}/no-lists ;;
*install*)
    touch {folder}/slurmd.service
    cp {policy} {folder}/policy-meanwhile
    touch {folder}/unpacking
    while [ -e {folder}/wait ]; do sleep 0.05; done
    echo "noise of dpkg"
    [ ! -e {folder}/broken ] || exit 100
    touch {folder}/finished ;;
esac
"""
_DPKG_QUERY = """#!/bin/sh
shift
for path in "$@"; do
    case $path in
    */opt/*) echo "slurm-smd-slurmd: $path" ;;
    *) echo "slurm-client, slurmd:amd64: $path" ;;
    esac
done
"""
_SYSTEMCTL = """#!/bin/sh
[ "$2" != is-enabled ] || exec test -e {folder}/"$3"
shift 2
for unit in "$@"; do rm {folder}/"$unit"; done
"""


@dataclass(frozen=True)
class Machine:
    """A machine with those programs; its files are in one folder."""

    folder: Path

    @property
    def policy(self) -> Path:
        return self.folder / "sbin" / "policy-rc.d"

    def calls(self) -> list[list[str]]:
        """Return the arguments of each call of apt-get, without those for every call."""
        path = self.folder / "calls"
        return [line.split()[3:] for line in path.read_text().splitlines()] if path.exists() else []

    def installing(self) -> subprocess.Popen[bytes]:
        """Start an installation as a process of its own, and return when apt-get unpacks."""
        (self.folder / "wait").touch()
        code = (
            "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if the tests run under nohup\n"
            f"from pathlib import Path; from slurm.apt import install; install(('slurmd',), Path({str(self.policy)!r}))"
        )
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        assert wait_until((self.folder / "unpacking").exists, _DEADLINE_S)
        return process

    def go_on(self) -> None:
        """Let apt-get end."""
        (self.folder / "wait").unlink()


@contextlib.contextmanager
def as_user() -> Iterator[None]:
    """Have the rights of a user without any, if this is root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    machine.policy.parent.mkdir()
    for name, text in {"apt-get": _APT, "dpkg-query": _DPKG_QUERY, "systemctl": _SYSTEMCTL}.items():
        (programs / name).write_text(text.format(folder=tmp_path, calls=tmp_path / "calls", policy=machine.policy))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return machine


def test_apt_may_remove_nothing_and_packages_start_nothing(machine: Machine) -> None:
    install(("slurmd",), machine.policy)

    *_, unpacked = machine.calls()
    assert "--no-remove" in unpacked
    assert unpacked[-1] == "slurmd"
    assert "exit 101" in (machine.folder / "policy-meanwhile").read_text()
    assert not machine.policy.exists()


def test_outdated_lists_of_packages_are_fetched_again(machine: Machine) -> None:
    (machine.folder / "no-lists").touch()

    install(("slurmd",), machine.policy)

    assert [call[0] for call in machine.calls()] == ["install", "update", "install", "install"]


def test_a_failure_has_the_output_of_apt(machine: Machine) -> None:
    (machine.folder / "broken").touch()

    with pytest.raises(CommandError, match="status 100: noise of dpkg"):
        install(("slurmd",), machine.policy)
    assert not machine.policy.exists()


def test_services_that_packages_enable_do_not_start_at_the_next_boot(machine: Machine) -> None:
    (machine.folder / "munge.service").touch()

    install(("slurmd",), machine.policy)

    assert not (machine.folder / "slurmd.service").exists()
    assert (machine.folder / "munge.service").exists(), "it was enabled before"


def test_beside_a_slurm_of_another_origin_nothing_is_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert foreign_slurm() == []
    site = machine.folder / "opt" / "slurm"
    site.mkdir(parents=True)
    (site / "slurmd").write_text("")
    (site / "slurmd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{site}:{os.environ['PATH']}")

    for packages in (("slurmctld",), ("libslurm-dev",)):
        with pytest.raises(CommandError, match=f"{site}/slurmd.*nothing is installed"):
            install(packages, machine.policy)
    assert machine.calls() == []
    install(("debootstrap",), machine.policy)  # it has nothing to do with Slurm
    assert machine.calls()[-1][-1] == "debootstrap"


def program(path: Path) -> Path:
    """Make an empty program. Return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize("file", ["slurmd.service", "slurmd.service.d/site.conf"])
def test_a_slurm_that_systemd_starts_is_one_of_the_machine(machine: Machine, file: str) -> None:
    site, units = program(machine.folder / "opt" / "slurmd"), machine.folder / "system"
    unit = units / file
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart=\nExecStart = -{site} -D $SLURMD_OPTIONS\n")
    (units / "slurmctld.service").symlink_to("/dev/null")  # masked
    (units / "slurmdbd.service").write_text(f"[Service]\nExecStart={machine.folder}/opt/removed/slurmdbd -D\n")
    assert foreign_slurm([units, machine.folder / "none"]) == [str(site)]
    unit.write_text(f"[Service]\nExecStart={program(machine.folder / 'usr' / 'slurmd')} -D\n")
    assert foreign_slurm([units]) == []


def process(proc: Path, name: str, program: Path, network: str) -> None:
    """Add a process to a folder such as /proc."""
    (proc / name / "ns").mkdir(parents=True)
    (proc / name / "exe").symlink_to(program)
    for kind, namespace in (("net", network), ("pid", "machine's pids")):
        (proc / namespace).touch()
        (proc / name / "ns" / kind).symlink_to(proc / namespace)


def test_a_slurm_that_runs_is_one_of_the_machine_and_that_of_a_mini_cluster_is_not(machine: Machine) -> None:
    proc, opt = machine.folder / "proc", machine.folder / "opt"
    process(proc, "self", Path("/usr/bin/python3"), "machine's network")
    process(proc, "101", opt / "mini" / "slurmd", "network of n1")
    process(proc, "102", opt / "other" / "program", "machine's network")
    process(proc, "103", Path("/usr/sbin/slurmd"), "machine's network")
    (proc / "104").mkdir()  # it has just ended
    assert foreign_slurm((), proc) == []
    process(proc, "105", opt / "slurmctld", "machine's network")
    process(proc, "106", Path(f"{opt}/slurmd (deleted)"), "machine's network")
    assert sorted(foreign_slurm((), proc)) == [f"{opt}/slurmctld", f"{opt}/slurmd"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_effect_after_the_installation(machine: Machine, number: signal.Signals) -> None:
    machine.policy.write_text("the machine's own")
    with machine.installing() as process:
        process.send_signal(number)
        machine.go_on()
    assert process.returncode == -number
    assert (machine.folder / "finished").exists()
    assert machine.policy.read_text() == "the machine's own"


def test_after_a_killed_installation_services_may_start_again_once_apt_has_ended(machine: Machine) -> None:
    # Given an installation that was killed, while its apt-get goes on
    machine.policy.write_text("the machine's own")
    with machine.installing() as process:
        process.kill()
    # Then no service may start before apt-get has ended
    allow_service_starts(machine.policy)
    assert "exit 101" in machine.policy.read_text()
    # and afterwards the machine has its own policy again
    machine.go_on()

    def back() -> bool:
        allow_service_starts(machine.policy)
        return machine.policy.read_text() == "the machine's own"

    assert wait_until(back, _DEADLINE_S)
    assert (machine.folder / "finished").exists()


def test_the_policy_of_the_machine_is_left_alone_when_no_installation_was_killed(machine: Machine) -> None:
    machine.policy.write_text("the machine's own")
    allow_service_starts(machine.policy)
    assert machine.policy.read_text() == "the machine's own"


def test_a_policy_that_a_user_cannot_read_is_left_alone(machine: Machine) -> None:
    machine.policy.write_text("the machine's own")
    machine.policy.chmod(0o700)
    with as_user():
        allow_service_starts(machine.policy)
    assert machine.policy.read_text() == "the machine's own"


def test_the_policy_of_the_machine_comes_back(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("the machine's own")
    with no_service_starts(policy):
        assert "exit 101" in policy.read_text()
        assert policy.stat().st_mode & 0o111
    assert policy.read_text() == "the machine's own"
    assert list(tmp_path.iterdir()) == [policy]


def test_no_policy_before_means_none_after(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with pytest.raises(RuntimeError, match="apt failed"), no_service_starts(policy):
        raise RuntimeError("apt failed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("had_one", [True, False])
def test_a_run_that_was_killed_is_made_good_by_the_next(tmp_path: Path, had_one: bool) -> None:
    # Given an installation that was killed: the policy-rc.d of Headway is in the place of the machine's own
    policy = tmp_path / "policy-rc.d"
    if had_one:
        policy.write_text("the machine's own")
    interrupted = no_service_starts(policy)
    interrupted.__enter__()
    # When the next one runs to its end
    with no_service_starts(policy):
        assert "exit 101" in policy.read_text()
    # Then it is as it was before the first
    assert (policy.read_text() if policy.exists() else None) == ("the machine's own" if had_one else None)
    assert [path.name for path in tmp_path.iterdir()] == (["policy-rc.d"] if had_one else [])
