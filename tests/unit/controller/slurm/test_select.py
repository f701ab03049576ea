"""Which client is used: what the settings say, and what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, SlurmError, SlurmReplyError, SlurmUnavailableError
from controller.slurm import select
from controller.slurm.model.job import JobKey
from controller.slurm.pyslurm.client import PySlurmClient
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.select import open_client, slurm_environment

CLOCK = Clockface("t.")


def settings(**more: object) -> ControllerSettings:
    return ControllerSettings.model_validate({"partitions": ("dl",), "slurm_timeout_s": 60.0, **more})


def scontrol(folder: Path, version: str, tres: str = "cpu,gres/gpu") -> Path:
    """A folder with a scontrol that knows its version and its configuration."""
    script = folder / "scontrol"
    script.write_text(
        "#!/bin/bash\nwhile read -r line; do case $line in\n"
        f'version) echo "slurm {version}";;\n'
        f'"show config") echo "ClusterName = lab"; echo "AccountingStorageTRES = {tres}";;\n'
        '"show hostnames "*) echo "${line#show hostnames }";;\nesac; done\n'
    )
    script.chmod(0o755)
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pyslurm 25.11.2 is installed, as far as its metadata goes."""
    packages = tmp_path / "site-packages"
    metadata = packages / "pyslurm-25.11.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pyslurm\nVersion: 25.11.2\n")
    monkeypatch.syspath_prepend(packages)
    return tmp_path


async def test_the_command_line_runs_no_query_at_first(tmp_path: Path) -> None:
    client = await open_client(settings(slurm_client="command-line", slurm_bin=tmp_path))
    assert isinstance(client, CommandLineClient)


async def test_auto_without_pyslurm(tmp_path: Path) -> None:
    assert isinstance(await open_client(settings(slurm_bin=tmp_path)), CommandLineClient)


async def test_auto_with_the_pyslurm_that_fits(site: Path) -> None:
    assert isinstance(await open_client(settings(slurm_bin=scontrol(site, "25.11.4"))), PySlurmClient)


@pytest.mark.parametrize(
    ("version", "tres", "why"),
    [
        ("22.05.8", "cpu,gres/gpu", "pyslurm 25.11.2 is not made for Slurm 22.05"),
        ("25.11.4", "cpu,mem", "AccountingStorageTRES"),
    ],
)
async def test_a_pyslurm_that_does_not_fit(site: Path, version: str, tres: str, why: str) -> None:
    folder = scontrol(site, version, tres)
    assert isinstance(await open_client(settings(slurm_bin=folder)), CommandLineClient)
    with pytest.raises(ConfigurationError, match=why):
        await open_client(settings(slurm_bin=folder, slurm_client="pyslurm"))


async def test_auto_while_slurmctld_is_away(site: Path) -> None:
    assert isinstance(await open_client(settings(slurm_bin=site / "nowhere")), CommandLineClient)
    with pytest.raises(SlurmUnavailableError):
        await open_client(settings(slurm_bin=site / "nowhere", slurm_client="pyslurm"))


async def test_pyslurm_that_is_wanted_and_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"pyslurm is not installed.*command-line"):
        await open_client(settings(slurm_client="pyslurm", slurm_bin=tmp_path))


def test_what_slurms_programs_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/of/the/caller")
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    seen = slurm_environment(settings(), CLOCK)
    assert seen["SLURM_CONF"] == "/etc/of/the/caller"
    assert (seen["LC_ALL"], seen["SLURM_TIME_FORMAT"], seen["SLURM_BITSTR_LEN"]) == ("C", "t.%s", "0")
    assert not {"SLURM_CLUSTERS", "SQUEUE_FORMAT"} & set(seen)
    assert slurm_environment(settings(slurm_conf="/etc/mine"), CLOCK)["SLURM_CONF"] == "/etc/mine"


def test_every_client_has_a_clockface_of_its_own() -> None:
    assert select.command_line_client(settings()) is not select.command_line_client(settings())


@pytest.mark.parametrize(
    ("script", "error", "why"),
    [
        ("sleep 600", SlurmUnavailableError, "no answer within"),
        ("echo rubbish", SlurmReplyError, "answered 0 of"),
        ("exit 1", SlurmReplyError, "status 1"),
        (
            "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
            SlurmUnavailableError,
            "scontrol ping",
        ),
    ],
)
async def test_a_scontrol_that_is_none_ends_in_an_error(
    tmp_path: Path, script: str, error: type[SlurmError], why: str
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    client = select.command_line_client(
        settings(slurm_bin=tmp_path, slurm_timeout_s=0.5 if script.startswith("sleep") else 20.0)
    )
    with pytest.raises(error, match=why):
        await client.snapshot()
    with pytest.raises(error, match=why):
        await client.release([JobKey("7", 1)])
