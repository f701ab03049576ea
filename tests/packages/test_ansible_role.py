"""The Ansible role, run: on a Debian with systemd and a Slurm of its own, as controller and as a node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packages.roots import REPOSITORY, this_release
from tests.packages.test_packages import ROOTS, _missing, dist
from tests.releases.container import CHECKOUT, Container, Done, Mount, build, tail

__all__ = ["dist"]

ANSIBLE = "/opt/ansible/bin"
PACKAGES = (
    *("dbus", "iproute2", "procps", "python3-apt", "python3-venv", "sudo", "lua5.1", "munge"),
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
)
"""Packages of the machine of a slurmctld, and those that Ansible needs on a machine."""
_PLAY_S = 600.0
_STAGE_S = 1800.0
_RECAP = re.compile(r"ok=(\d+) +changed=(\d+) +unreachable=0 +failed=0")
_NETWORK = re.compile(r"(?i).*_proxy$|PIP_(?!FIND_LINKS)")


def missing() -> str:
    """Return why the role cannot be run here; empty where it can."""
    if reason := _missing():
        return reason
    return "" if shutil.which("systemd-nspawn") else "no systemd-nspawn here: apt-get install systemd-container"


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing"),
]


def root_with_ansible(release: str, roots: Path) -> Path:
    """Return a root with Slurm and ansible-core, which is made once; what runs in it does not change it."""
    root, log = roots / f"ansible-{release}", roots / f"ansible-{release}.log"
    ready = roots / f".ansible-{release}-ready"
    if ready.exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    roots.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        words = ("debootstrap", "--variant=minbase", "--include=systemd-sysv,dbus,ca-certificates", release, root)
        assert subprocess.run(words, stdout=output, stderr=output, timeout=_STAGE_S).returncode == 0, tail(log)
    settings = [path for path in map(Path, ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")) if path.exists()]
    text = f"""
        apt-get -q update && apt-get -q install -y --no-install-recommends {" ".join(PACKAGES)}
        systemctl disable slurmctld slurmd && rm -f /etc/hostname
        python3 -m venv /opt/ansible && /opt/ansible/bin/pip install --quiet ansible-core
    """
    environment = {name: text for name, text in os.environ.items() if _NETWORK.match(name)}
    build(
        root,
        text,
        [Mount(path, path) for path in settings],
        environment | {"DEBIAN_FRONTEND": "noninteractive"},
        log,
        _STAGE_S,
    )
    ready.touch()
    return root


@pytest.fixture(scope="module")
def release() -> str:
    """The release of the packages: the only one that the role is tried on."""
    return this_release()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The role, and the site's own Slurm, as they are in git."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=REPOSITORY, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if name.startswith(("systemd/ansible/", "tests/releases/site/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    return folder


@contextmanager
def booted(name: str, dist: Path, checkout: Path) -> Iterator[Container]:
    """A machine that is up, with systemd, Ansible and the packages."""
    root = root_with_ansible(this_release(), ROOTS)
    mounts = [Mount(dist.resolve(), Path("/srv/dist"))]
    with Container(root, name, mounts, checkout, checkout.parent / f"{checkout.name}-{name}.log") as container:
        yield container


@pytest.fixture(scope="module")
def machine(dist: Path, checkout: Path) -> Iterator[Container]:
    """A machine with a Slurm that knows nothing of Headway."""
    with booted("head", dist, checkout) as container:
        ready = container.bash(f"bash {CHECKOUT}/tests/releases/site/setup.sh", timeout_s=240)
        assert ready.status == 0, ready.output
        yield container


def play(machine: Container, group: str, package: str, *options: str) -> Done:
    """Run the playbook for that machine as one of a group."""
    deb = machine.bash(f"ls /srv/dist/{package}_*.deb", timeout_s=60).output.strip()
    inventory = f"[{group}]\nhere ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"
    machine.bash(f"cat >/root/inventory <<'END'\n{inventory}END", timeout_s=60)
    return machine.run(
        f"{ANSIBLE}/ansible-playbook", "-i", "/root/inventory", "-e", f"headway_package={deb}", *options, "site.yml",
        timeout_s=_PLAY_S, cwd=f"{CHECKOUT}/systemd/ansible", env={"LANG": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip


def changed(done: Done) -> int:
    """Return how many tasks have changed something, of a play without a failure."""
    assert done.status == 0, done.output[-6000:]
    found = _RECAP.search(done.output)
    assert found is not None, done.output[-3000:]
    return int(found[2])


CONTROLLER = ("-e", '{"headway_partitions": ["gpu"], "headway_settings": {"agents_address": "10.99.0.1:9342"}}')
AGENT = (
    "-e", '{"headway_controller_address": "10.99.0.1:9342", "headway_controller_uid": 64030, "headway_agent_settings":'
    ' {"metrics_file": "/run/headway-agent/headway.prom"}}',
)  # fmt: skip


def test_the_role_installs_headway_and_a_second_play_changes_nothing(machine: Container) -> None:
    # when the play may restart slurmctld
    first = play(machine, "headway_controller", "headway", *CONTROLLER, "-e", "headway_restart_slurmctld=true")
    # then the services run, doctor has found nothing, and a job of a user is placed by Headway
    assert changed(first) > 5
    for unit in ("headway-controller.service", "headway-policy.service", "headway-watchdog.timer"):
        assert machine.run("systemctl", "is-active", unit, timeout_s=60).output.strip() == "active"
        assert machine.run("systemctl", "is-enabled", unit, timeout_s=60).output.strip() == "enabled"
    job = machine.bash(
        "id=$(runuser -u alice -- sbatch --parsable --gres=gpu:2 --output=/dev/null --wrap='sleep 1') && for _ in $(seq 90); do "
        "scontrol --oneliner show job $id | grep -q JobState=COMPLETED && exec headway report $id; sleep 1; done; exit 1",
        timeout_s=180, cwd="/tmp",
    )  # fmt: skip
    assert job.status == 0, job.output
    # and the same play again changes nothing
    assert (
        changed(play(machine, "headway_controller", "headway", *CONTROLLER, "-e", "headway_restart_slurmctld=true"))
        == 0
    )
    # but a changed setting is written, and the controller restarted
    other = (CONTROLLER[0], CONTROLLER[1].replace('"agents_address"', '"stale_after_s": 45, "agents_address"'))
    assert changed(play(machine, "headway_controller", "headway", *other, "-e", "headway_restart_slurmctld=true")) == 2
    assert "stale_after_s = 45" in machine.run("cat", "/etc/headway/controller.toml", timeout_s=60).output


def test_the_role_says_which_variables_are_missing(machine: Container) -> None:
    done = play(machine, "headway_controller", "headway")
    assert done.status != 0
    assert "Set headway_part" in done.output


def test_the_role_installs_an_agent_on_a_node(dist: Path, checkout: Path) -> None:
    with booted("n1", dist, checkout) as node:
        node.run("systemctl", "restart", "munge", timeout_s=60)
        # its check would find that this node has no controller to reach
        options = (*AGENT, "-e", "headway_doctor=false")
        # when the role is applied, then the agent runs, and writes its metrics
        assert changed(play(node, "headway_agents", "headway-agent", *options)) >= 4
        assert node.run("systemctl", "is-active", "headway-agent", timeout_s=60).output.strip() == "active"
        written = "grep headway_agent_gpus_read /run/headway-agent/headway.prom"
        found = node.bash(f"for _ in $(seq 60); do {written} && exit; sleep 1; done; exit 1", timeout_s=90)
        assert found.status == 0, node.run("journalctl", "--unit=headway-agent", "--lines=20", timeout_s=60).output
        # and a second play changes nothing
        assert changed(play(node, "headway_agents", "headway-agent", *options)) == 0
