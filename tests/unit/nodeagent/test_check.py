"""The findings of `headway-agent check`, which must not disturb a running agent."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from typer.testing import CliRunner, Result

from controller.slurm.configuration import installed_files
from nodeagent import check
from nodeagent.cli import app
from nodeagent.config import AgentSettings
from nodeagent.telemetry.network import interfaces
from nodeagent.telemetry.nvml import NoGpus
from nodeagent.uplink.munge import Munge
from nodeagent.wire.report import GpuReading
from policies.serving.runtime.finding import Finding, Level
from tests.unit.nodeagent.uplink.munged import running_munged


def settings(**values: Any) -> AgentSettings:
    return AgentSettings(**{"controller_address": "127.0.0.1:1", "munge": "off", "gpus": "off", **values})


def found(name: str, findings: list[Finding]) -> Finding:
    return next(each for each in findings if each.check == name)


async def looked(sys: Path, **values: Any) -> list[Finding]:
    return await check.run_checks(settings(**values), sys)


# --- the controller and MUNGE


async def test_a_controller_that_answers_and_one_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_DIAL_S", 60.0)
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    there = await looked(tmp_path, controller_address=f"127.0.0.1:{port}")
    await server.stop(0)
    monkeypatch.setattr(check, "_DIAL_S", 0.5)
    gone = await looked(tmp_path, controller_address=f"127.0.0.1:{port}")

    assert found("controller", there).level is Level.OK
    assert found("controller", gone).level is Level.ERROR
    assert "agents_address" in found("controller", gone).mend


async def test_an_address_that_needs_munge_without_it_is_an_error(tmp_path: Path) -> None:
    finding = found("controller", await looked(tmp_path, controller_address="head:9342"))

    assert finding.level is Level.ERROR
    assert "without MUNGE" in finding.what


async def test_munge_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_DIAL_S", 0.2)
    monkeypatch.setattr(Munge.__init__, "__defaults__", (None, 60.0))
    with running_munged() as (path, process):
        works = await looked(tmp_path, munge="required", munge_socket=path)
        process.kill()
        await asyncio.to_thread(process.wait)
        broken = await looked(tmp_path, munge="required", munge_socket=path)

    assert found("munge", works).level is Level.OK
    assert found("munge", broken).level is Level.ERROR


# --- jobs


def test_a_folder_that_others_may_write_is_no_place_for_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    folder.chmod(0o777)
    wrong = check.job_socket(folder / "job.sock")
    folder.chmod(0o755)
    right = check.job_socket(folder / "job.sock")

    assert (wrong.level, right.level) == (Level.ERROR, Level.OK)
    assert f"chmod 755 {folder}" in wrong.mend


def test_what_jobs_load_is_complete_and_open_to_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "jobside"
    (folder / "headway_job").mkdir(parents=True)
    module = folder / "headway_job" / "__init__.py"
    module.touch()
    assert check.job_side(folder).level is Level.ERROR, "no entry point"

    (folder / "headway_job-1.dist-info").mkdir()
    (folder / "headway_job-1.dist-info" / "entry_points.txt").touch()
    module.chmod(0o600)
    closed = check.job_side(folder)
    assert closed.level is Level.ERROR
    assert "users may not read" in closed.what


def test_a_copied_unit_that_hides_the_packages_or_is_of_another_version(tmp_path: Path) -> None:
    name = "headway-agent.service"
    copied, packaged, shipped = (tmp_path / each for each in ("etc", "lib", "share"))
    for folder in (copied, packaged, shipped):
        folder.mkdir()

    def found() -> list[tuple[Level, str]]:
        return [(each.level, each.mend) for each in check.unit(copied, packaged, shipped)]

    (shipped / name).write_text("ExecStart=/opt/headway/bin/headway-agent run\n")
    assert found() == []
    for text in ("ExecStart=/opt/headway/bin/headway-agent run\n", f"ExecStart={sys.prefix}/bin/headway-agent run\n"):
        (copied / name).write_text(text)
        assert found() == []
    (copied / name).write_text("ExecStart=/opt/headway/bin/headway-agent\n")
    ((level, mend),) = found()
    assert (level, mend.split(";")[0]) == (Level.WARNING, f"cp {shipped / name} {copied}/")

    (packaged / name).touch()
    ((level, mend),) = found()
    assert (level, mend.split(";")[0]) == (Level.WARNING, f"rm {copied / name}")
    (copied / name).unlink()
    assert found() == []


@pytest.mark.parametrize(
    ("identity", "cgroups", "level"),
    [
        ("automatic", "freezer/slurm", Level.OK),
        ("automatic", "system.slice/n1_slurmstepd.scope", Level.OK),
        ("automatic", "freezer/docker", Level.WARNING),
        ("cgroup", "freezer/docker", Level.WARNING),
        ("ancestry", "freezer/docker", Level.OK),
    ],
)
def test_how_jobs_are_identified(tmp_path: Path, identity: str, cgroups: str, level: Level) -> None:
    (tmp_path / cgroups).mkdir(parents=True)

    assert check.identities(settings(identity=identity), tmp_path).level is level


@pytest.mark.parametrize(
    ("folders", "controllers", "lacking"),
    [
        (["cpuacct/slurm", "memory/slurm"], None, ""),
        (["cpuacct/slurm", "memory/docker"], None, "memory"),
        ([], "cpu io memory", ""),
        ([], "io", "cpu and memory"),
    ],
)
def test_what_the_kernel_counts(tmp_path: Path, folders: list[str], controllers: str | None, lacking: str) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    if controllers is not None:
        (tmp_path / "cgroup.controllers").write_text(controllers)

    finding = check.usage(tmp_path)

    assert (finding.level is Level.OK) == (not lacking)
    assert f"without {lacking}" in finding.what or not lacking


# --- devices


class Gpus(NoGpus):
    def __init__(self, rows: tuple[GpuReading, ...] | None, absent: str = "") -> None:
        self.rows, self.absent = rows, absent  # type: ignore[misc]

    async def read(self) -> tuple[GpuReading, ...] | None:
        return self.rows


@pytest.mark.parametrize(("mode", "level"), [("automatic", Level.WARNING), ("required", Level.ERROR)])
async def test_a_node_without_a_driver(mode: str, level: Level) -> None:
    finding = await check.gpu_findings(settings(gpus=mode), Gpus(None, "no library"))

    assert finding.level is level
    assert "no library" in finding.what


async def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_GPU_TIMEOUT_S", 0.0)

    finding = await check.gpu_findings(settings(gpus="automatic"), Gpus(None))

    assert finding.level is Level.WARNING
    assert "does not answer" in finding.what


def test_interfaces_and_their_speeds(tmp_path: Path) -> None:
    for name, speed in (("ib0", "100000"), ("eth9", "-1")):
        (tmp_path / "class/net" / name / "statistics").mkdir(parents=True)
        (tmp_path / "class/net" / name / "speed").write_text(speed)

    both = list(check.nic_findings(interfaces(tmp_path), ()))
    slow = list(check.nic_findings(interfaces(tmp_path, ("eth9",)), ("eth9",)))
    none = list(check.nic_findings(interfaces(tmp_path, ("wlan*",)), ("wlan*",)))

    assert [each.what for each in both] == ["eth9: ethernet, speed not known", "ib0: ethernet, 100 Gbit/s"]
    assert [each.level for each in slow] == [Level.OK, Level.WARNING]
    assert [(each.level, each.what) for each in none] == [(Level.WARNING, "no interface matches wlan*")]


def test_the_task_prolog_of_slurm_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    conf, program, side = tmp_path / "slurm.conf", tmp_path / "task_prolog.sh", tmp_path / "side"
    text = check.SHIPPED_PROLOG.read_text()

    def looks(prolog: str | None) -> list[tuple[Level, str]]:
        if prolog is not None:
            program.write_text(prolog)
        return [(finding.level, finding.what) for finding in check.task_prolog([conf])]

    assert looks(None) == [], "no slurm.conf"
    conf.write_text("ClusterName=c\n")
    assert looks(None) == [], "none is set"
    conf.write_text(f'TaskProlog="{program}"\n')
    ((level, what),) = looks(None)
    assert (level, "is not on this node: jobs fail here" in what) == (Level.ERROR, True)
    assert looks("#!/bin/sh\n") == [], "the site's own"

    ours = installed_files.with_job_side(text, side, None)
    ((level, what),) = looks(ours)
    assert (level, f"jobs load {side}, which is not on this node" in what) == (Level.ERROR, True)
    (side / "headway_job").mkdir(parents=True)
    (side / "headway_job" / "__init__.py").touch()
    ((level, _),) = looks(ours)
    assert level is Level.OK
    ((level, what),) = looks(ours.replace(f"version {installed_files.VERSION}", "version 3"))
    assert (level, f"has version 3, this Headway needs {installed_files.VERSION}" in what) == (Level.ERROR, True)


# --- the command


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_the_command_prints_every_finding_and_fails_when_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_DIAL_S", 0.2)
    config = tmp_path / "agent.toml"
    config.write_text(f'controller_address = "unix://{tmp_path}/none.sock"\ngpus = "off"\n')

    reported = invoke("check", "--config", str(config), "--json")

    rows = json.loads(reported.output)["findings"]
    assert reported.exit_code == 1
    assert {"controller", "munge", "job-socket", "job-side", "identity", "usage", "gpus", "nics"} <= {
        row["check"] for row in rows
    }
    assert all(row["mend"] for row in rows if row["level"] not in {"ok", "skipped"})


@pytest.mark.parametrize("words", [("check",), ("run",), ()])
def test_settings_that_are_wrong_are_one_message(tmp_path: Path, words: tuple[str, ...]) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("controler_address = 1\n")

    reported = invoke(*(("--config", str(config)) if not words else (*words, "--config", str(config))))

    assert reported.exit_code == 1
    assert f"headway-agent: {config}: " in reported.output
    assert "controler_address: no such key" in reported.output


def test_the_agent_does_not_start_where_it_cannot_be_trusted(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'controller_address = "head:1"\nmunge = "off"\njob_socket = "{tmp_path}/job.sock"\n')

    reported = invoke("run", "--config", str(config))

    assert reported.exit_code == 1
    assert "headway-agent: head:1 can be reached from other machines" in reported.output
