"""The units, checked by systemd's own tools if this machine has them."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from controller.base.config import WEB_USER
from controller.slurm.configuration import installed_files
from nodeagent.config import AgentSettings
from slurm.testbed.agents import AGENT_CAPABILITIES

UNITS = Path(__file__).parents[3] / "systemd"
SERVICES = ("headway-controller", "headway-policy", "headway-watchdog", "headway-agent", "headway-web")
MOST_EXPOSED = {
    "headway-controller": 5.0,
    "headway-policy": 3.0,
    "headway-watchdog": 5.0,
    "headway-agent": 5.0,
    "headway-web": 2.0,
}

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / name)
    return parser


@needs_systemd
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    # Given the units, with programs that exist on this machine
    for path in UNITS.glob("headway-*"):
        text = re.sub(r"/opt/headway/bin/\S+", "/bin/true", path.read_text())
        (tmp_path / path.name).write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))

    done = run("systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir())))

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", SERVICES)
def test_services_are_sandboxed(name: str) -> None:
    done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNITS / f"{name}.service"))

    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) <= MOST_EXPOSED[name]


@pytest.mark.parametrize("name", ["headway-controller", "headway-policy", "headway-agent", "headway-web"])
def test_daemons_notify_systemd(name: str) -> None:
    service = unit(f"{name}.service")["Service"]

    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert service["Restart"] == "always"
    assert (
        unit(f"{name}.service")["Unit"]["StartLimitIntervalSec"] == "0"
    )  # a program that ends again and again is started again


def test_controller_and_watchdog_are_the_same_user_and_share_no_unit() -> None:
    controller, watchdog = unit("headway-controller.service"), unit("headway-watchdog.service")

    assert controller["Service"]["User"] == watchdog["Service"]["User"] == "slurm"
    assert "headway-controller" not in "".join(watchdog["Unit"].values()).replace("file:///opt/headway", "")
    assert controller["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_the_watchdog_can_read_the_queue_that_the_controller_reads() -> None:
    limits = [unit(f"headway-{name}.service")["Service"]["MemoryMax"] for name in ("controller", "watchdog")]
    assert limits == ["2G", "2G"]


def test_slurmctlds_user_reads_the_lease_and_only_the_controller_its_state() -> None:
    service = unit("headway-controller.service")["Service"]

    assert (service["RuntimeDirectory"], service["RuntimeDirectoryMode"]) == ("headway", "0755")
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == ("headway", "0700")


def test_the_agent_listens_where_task_prolog_looks_and_has_no_other_rights() -> None:
    service = unit("headway-agent.service")["Service"]

    assert installed_files.JOB_SOCKET.parent == Path("/run") / service["RuntimeDirectory"]
    assert AgentSettings(controller_address="x:1").job_socket == installed_files.JOB_SOCKET
    assert service["RuntimeDirectoryMode"] == "0755"
    assert service["CapabilityBoundingSet"].split() == [f"CAP_{name.upper()}" for name in AGENT_CAPABILITIES]
    assert "AF_NETLINK" in service["RestrictAddressFamilies"]  # unix_names asks the kernel for names of sockets
    assert "slurmd.service" in unit("headway-agent.service")["Unit"]["Before"]


def test_the_controllers_user_may_enter_where_the_policy_server_listens() -> None:
    service = unit("headway-policy.service")["Service"]

    assert f"unix:///run/{service['RuntimeDirectory']}/policy.sock" in service["ExecStart"]
    assert (service["Group"], service["RuntimeDirectoryMode"]) == ("headway", "0750")
    assert "m slurm headway" in (UNITS / "sysusers.d" / "headway.conf").read_text()


def test_the_policy_server_computes_in_one_thread() -> None:
    assert "\nEnvironment=OMP_NUM_THREADS=1\n" in (UNITS / "headway-policy.service").read_text()


def test_users_can_be_made_by_systemd_before_246() -> None:
    """Rocky Linux 8 has systemd 239, which refuses an id with a primary group (`-:headway`)."""
    lines = [line.split() for line in (UNITS / "sysusers.d" / "headway.conf").read_text().splitlines()]

    assert {words[1]: words[2] for words in lines if words[0] == "u"} == {"headway-policy": "-", "headway-web": "-"}
    assert unit("headway-policy.service")["Service"]["Group"] == "headway"


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="no systemd-sysusers here")
def test_sysusers_creates_the_users(tmp_path: Path) -> None:
    # Given another machine's /etc, with Slurm's user
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\nslurm:x:64030:64030::/:/usr/sbin/nologin\n")
    (etc / "group").write_text("root:x:0:\nslurm:x:64030:\n")

    done = run("systemd-sysusers", f"--root={tmp_path}", str(UNITS / "sysusers.d" / "headway.conf"))

    assert done.returncode == 0, done.stderr
    members = re.search(r"^headway:x:\d+:(.*)$", (etc / "group").read_text(), re.MULTILINE)
    assert members is not None
    assert set(members[1].split(",")) == {"headway-policy", "slurm"}
    for name in ("headway-policy", "headway-web"):
        assert re.search(rf"^{name}:x:\d+:\d+:", (etc / "passwd").read_text(), re.MULTILINE)
    assert re.search(r"^headway-web:x:\d+:$", (etc / "group").read_text(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="no systemd-tmpfiles here")
def test_tmpfiles_creates_the_folders(tmp_path: Path) -> None:
    config = (UNITS / "tmpfiles.d" / "headway.conf").read_text().replace("slurm slurm", "root root")
    (tmp_path / "headway.conf").write_text(config)

    done = run("systemd-tmpfiles", "--create", f"--root={tmp_path}", str(tmp_path / "headway.conf"))

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "var/lib/headway").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "etc/headway").is_dir()


def test_the_page_is_the_user_that_the_controller_trusts_and_has_a_socket_for_the_proxy() -> None:
    service = unit("headway-web.service")["Service"]

    assert service["User"] == service["Group"] == WEB_USER
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryMode"]) == ("headway-web", "0750")
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
