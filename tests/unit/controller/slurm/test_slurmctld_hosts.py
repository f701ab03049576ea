"""The machine whose slurmctld is active, from slurm.conf and slurmctld's own heartbeat."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError
from controller.slurm.configuration.conf import read_slurm_conf
from controller.slurm.slurmctld_hosts import SlurmctldHosts, hosts_in, parse_heartbeat, read_slurmctld_hosts

SEEN_ON_22_05 = bytes.fromhex("000000006b098b1d0000000000000001")
"""Heartbeat of a backup that had taken over, 2026-11-27 13:52:29 UTC."""
CONF = "SlurmctldHost=ctl1(10.0.0.1)\nslurmctldhost = ctl2\nStateSaveLocation={state}\n"


def conf(folder: Path, text: str = CONF) -> Path:
    path = folder / "slurm.conf"
    path.write_text(text.format(state=folder))
    return path


def beat(folder: Path, number: int) -> None:
    (folder / "heartbeat").write_bytes(struct.pack(">QQ", 1_795_787_549, number))


@pytest.mark.parametrize(
    ("content", "active"),
    [
        (SEEN_ON_22_05, 1),
        (struct.pack(">QQ", 1, 0), 0),
        (struct.pack(">QQ", 1, 2), None),
        (b"", None),
        (b"x" * 15, None),
    ],
)
def test_the_heartbeat_of_slurmctld_says_which_one_is_active(content: bytes, active: int | None) -> None:
    assert parse_heartbeat(content, num_hosts=2) == active


@pytest.mark.parametrize(("host", "own"), [("ctl1", 0), ("ctl2", 1), ("ctl2.cluster.example", 1)])
def test_this_machine_is_found_by_its_host_name(tmp_path: Path, host: str, own: int) -> None:
    hosts = hosts_in(read_slurm_conf(conf(tmp_path)), host)

    assert hosts == SlurmctldHosts(("ctl1", "ctl2"), own, tmp_path / "heartbeat")


def test_headway_works_where_slurmctld_is_active(tmp_path: Path) -> None:
    primary, backup = (hosts_in(read_slurm_conf(conf(tmp_path)), host) for host in ("ctl1", "ctl2"))

    for active in (0, 1, 0):
        beat(tmp_path, active)
        assert primary.are_led_here(primary.active()) == (active == 0)
        assert backup.are_led_here(backup.active()) == (active == 1)


def test_before_any_heartbeat_headway_works_on_the_primary(tmp_path: Path) -> None:
    primary, backup = (hosts_in(read_slurm_conf(conf(tmp_path)), host) for host in ("ctl1", "ctl2"))

    assert (primary.active(), backup.active()) == (None, None)
    assert primary.are_led_here(None)
    assert not backup.are_led_here(None)


def test_a_heartbeat_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    hosts = hosts_in(read_slurm_conf(conf(tmp_path)), "ctl1")
    (tmp_path / "heartbeat").mkdir()

    assert hosts.active() is None


@pytest.mark.parametrize(
    ("text", "host", "says"),
    [
        ("SlurmctldHost=ctl1\n", "ctl1", "has 1 SlurmctldHost, so no other slurmctld can take over"),
        (CONF, "login", "this machine is login, and SlurmctldHost in .* names ctl1, ctl2"),
    ],
)
def test_a_machine_that_cannot_stand_by_is_an_error(tmp_path: Path, text: str, host: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        hosts_in(read_slurm_conf(conf(tmp_path, text)), host)


def test_without_the_setting_slurm_conf_is_not_read(tmp_path: Path) -> None:
    absent = tmp_path / "no-such-slurm.conf"

    assert read_slurmctld_hosts(ControllerSettings(partitions=("dl",), slurm_conf=absent)) is None
    with pytest.raises(ConfigurationError, match=r"no-such-slurm\.conf: no such file"):
        read_slurmctld_hosts(ControllerSettings(partitions=("dl",), slurm_conf=absent, stand_by=True))
