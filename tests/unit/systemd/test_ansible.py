"""The Ansible role: its files, the settings that it writes, and Ansible's own check of its syntax where Ansible is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from controller.base.config import load_settings as load_controller
from nodeagent.config import load_settings as load_agent
from tests.unit.slurm.setup.site import Site

FOLDER = Path(__file__).parents[3] / "systemd/ansible"
ROLE = FOLDER / "roles/headway"


def written(name: str, **variables: Any) -> str:
    """Return a file that the role writes with these variables, and its defaults for the others."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"to_json": json.dumps, "combine": lambda one, other: {**one, **other}}
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    return environment.get_template(name).render({**defaults, "ansible_managed": "Ansible managed", **variables})


def settings_of(text: str, path: Path) -> Mapping[str, Any]:
    path.write_text(text)
    return tomllib.loads(text)


def test_the_controllers_settings_are_understood_by_the_controller(tmp_path: Path) -> None:
    changes = {"agents_address": "0.0.0.0:9342", "stale_after_s": 45, "preemption_partitions": {"gpu": "advise"}}
    text = written("controller.toml.j2", headway_partitions=["gpu", 'a"b'], headway_settings=changes)
    found = settings_of(text, tmp_path / "controller.toml")
    assert found["partitions"] == ["gpu", 'a"b']
    settings_of(text.replace('"a\\"b"', '"debug"'), tmp_path / "controller.toml")
    settings = load_controller(tmp_path / "controller.toml")
    assert settings.partitions == ("gpu", "debug")
    assert (settings.agents_address, settings.stale_after_s) == ("0.0.0.0:9342", 45)
    assert settings.preemption_partitions == {"gpu": "advise"}


def test_the_controller_begins_with_the_settings_of_every_other_installation() -> None:
    example = tomllib.loads((FOLDER.parents[1] / "slurm/plugin/example/controller.toml").read_text())

    assert tomllib.loads(written("controller.toml.j2", headway_partitions=example["partitions"])) == example


def test_the_agents_settings_are_understood_by_the_agent(tmp_path: Path) -> None:
    text = written("agent.toml.j2", headway_controller_address="head:9342", headway_controller_uid="64030")
    settings_of(text, tmp_path / "agent.toml")
    settings = load_agent(tmp_path / "agent.toml")
    assert (settings.controller_address, settings.controller_uid) == (("head:9342",), 64030)


def test_the_policy_is_that_of_the_variables() -> None:
    assert "HEADWAY_POLICY=srtf\n" in written("policy.env.j2", headway_policy="srtf") + "\n"


def test_every_file_is_yaml_and_every_service_is_one_of_headways() -> None:
    units = {path.name for path in (FOLDER.parent).glob("headway-*")}
    services = set()
    for path in FOLDER.rglob("*.yml"):
        for task in yaml.safe_load(path.read_text()) or []:
            if isinstance(task, dict) and (service := task.get("ansible.builtin.systemd_service")):
                services |= set(task.get("loop", [service["name"]]))
    services.remove("slurmctld")
    assert {name if "." in name else f"{name}.service" for name in services} <= units


def task(name: str) -> dict[str, Any]:
    tasks = yaml.safe_load((ROLE / "tasks/controller.yml").read_text())
    found: dict[str, Any] = next(each for each in tasks if each["name"] == name)
    return found


def holds(condition: str, **variables: Any) -> bool:
    """Return the value of a condition as Ansible would evaluate it."""
    environment = jinja2.Environment()
    environment.tests["changed"] = lambda result: result.get("changed", False)
    environment.filters["bool"] = lambda value: str(value).lower() in {"true", "yes", "1"}
    return bool(environment.compile_expression(condition, undefined_to_none=False)(**variables))


def test_only_what_is_written_restarts_slurmctld(tmp_path: Path) -> None:
    site, condition = Site(tmp_path), task("Change slurm.conf and install job_submit.lua and the hooks")["changed_when"]
    (tmp_path / "job_submit.lua").write_text("-- the site's, which needs a decision in every play\n")

    first, second = site.setup("--apply"), site.setup("--apply")

    assert (first.exit_code, second.exit_code) == (1, 1)
    assert holds(condition, headway_applied={"stdout": first.output})
    assert not holds(condition, headway_applied={"stdout": second.output})


@pytest.mark.parametrize(
    ("written", "restarts", "looks"),
    [(True, False, False), (True, True, True), (False, False, True), (False, True, True)],
)
def test_doctor_waits_for_the_restart_that_the_play_leaves_to_the_administrator(
    written: bool, restarts: bool, looks: bool
) -> None:
    condition = task("Look for problems")["when"]
    variables = {"headway_applied": {"changed": written}, "headway_restart_slurmctld": restarts}

    assert holds(condition, headway_doctor=True, **variables) is looks
    assert not holds(condition, headway_doctor=False, **variables)


def test_switches_may_be_given_as_words_on_the_command_line() -> None:
    """`-e headway_doctor=false` is text for Ansible, which since 2.19 refuses text as a condition."""
    conditions = [
        str(task["when"])
        for path in ROLE.rglob("*.yml")
        for task in yaml.safe_load(path.read_text()) or []
        if "when" in task
    ]
    switches = {
        name
        for name, value in yaml.safe_load((ROLE / "defaults/main.yml").read_text()).items()
        if isinstance(value, bool)
    }
    for condition in conditions:
        for name in switches:
            assert condition.count(name) == condition.count(f"{name} | bool"), condition


@pytest.mark.skipif(
    shutil.which("ansible-playbook") is None, reason="no ansible-playbook here: pip install ansible-core"
)
def test_ansible_understands_the_playbook(tmp_path: Path) -> None:
    (tmp_path / "inventory").write_text("[headway_controller]\nhead\n[headway_agents]\nn1\n")
    done = subprocess.run(
        ["ansible-playbook", "-i", str(tmp_path / "inventory"), "--syntax-check", "site.yml"],
        cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
