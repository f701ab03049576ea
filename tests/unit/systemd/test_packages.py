"""The description of the packages agrees with the project; `tests/packages` builds and installs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "systemd/packages"
SCRIPTS = sorted([*FOLDER.glob("*.sh"), *FOLDER.glob("scripts/*")])


def documents() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in yaml.safe_load_all((FOLDER / "packages.yaml").read_text())}


def links(package: str) -> dict[str, str]:
    contents = documents()[package]["contents"]
    return {each["dst"]: each["src"] for each in contents if each.get("type") == "symlink"}


def test_each_package_has_its_scripts_and_no_other_is_there() -> None:
    named = {Path(path).name for each in documents().values() for path in each["scripts"].values()}

    assert named == {path.name for path in FOLDER.glob("scripts/*")}


@pytest.mark.parametrize("package", ["headway", "headway-agent"])
def test_links_lead_to_programs_of_the_project(package: str) -> None:
    programs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    linked = {Path(dst).name for dst in links(package) if dst.startswith("/usr/bin/")}

    assert linked <= programs.keys()
    assert all(links(package)[f"/usr/bin/{name}"] == f"/opt/headway/bin/{name}" for name in linked)


def test_every_program_of_a_unit_is_in_its_package() -> None:
    for package, units in (
        ("headway", ROOT.glob("systemd/*.service")),
        ("headway-agent", [ROOT / "systemd/headway-agent.service"]),
    ):
        started = {
            line.split()[0].removeprefix("ExecStart=/opt/headway/bin/")
            for unit in units
            for line in unit.read_text().splitlines()
            if line.startswith("ExecStart=/opt/headway/")
        }
        assert started
        assert {f"/usr/bin/{name}" for name in started} <= links(package).keys()


def test_packages_that_share_a_folder_exclude_each_other() -> None:
    found = documents()

    assert found["headway"]["conflicts"] == ["headway-agent"]
    assert found["headway-agent"]["conflicts"] == ["headway"]


def test_settings_of_the_administrator_are_kept() -> None:
    for each in documents().values():
        (settings,) = (part for part in each["contents"] if part["dst"].startswith("/etc/headway/"))
        assert settings["type"] == "config|noreplace"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_valid(path: Path) -> None:
    shell = shutil.which("dash") or "sh"
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert path.stat().st_mode & 0o111


@pytest.mark.parametrize("path", sorted(FOLDER.glob("scripts/*")), ids=lambda path: path.name)
@pytest.mark.parametrize("argument", ["upgrade", "1", "failed-upgrade", "abort-remove"])
def test_an_upgrade_stops_and_removes_nothing(path: Path, argument: str, tmp_path: Path) -> None:
    """Programs of the system are replaced by one that writes down how it was called."""
    called = tmp_path / "called"
    for name in ("systemctl", "systemd-sysusers", "systemd-tmpfiles", "rm", "id", "getent"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{called}\n')
        (tmp_path / name).chmod(0o755)
    subprocess.run(
        ["/bin/sh", path, argument], env={"PATH": str(tmp_path)}, timeout=60, check=True, capture_output=True
    )

    text = called.read_text() if called.exists() else ""
    assert "disable" not in text and "stop" not in text and "rm " not in text


@pytest.mark.parametrize("package", ["headway", "headway-agent"])
@pytest.mark.parametrize("argument", ["configure", "1"])
def test_units_that_were_copied_by_hand_are_named_with_the_mend(package: str, argument: str, tmp_path: Path) -> None:
    # given units of the package, and one of the same name from an installation by hand; another is linked
    copied, packaged = tmp_path / "etc/systemd/system", tmp_path / "usr/lib/systemd/system"
    for folder in (copied, packaged):
        folder.mkdir(parents=True)
    for name in ("headway-agent.service", "headway-web.service"):
        (packaged / name).touch()
    (copied / "headway-web.service").symlink_to(packaged / "headway-web.service")
    text = (FOLDER / f"scripts/{package}.postinst").read_text()
    script = tmp_path / "postinst"
    script.write_text(re.sub(r"/(etc|usr/lib)/systemd/system", lambda found: f"{tmp_path}{found[0]}", text))
    for name in ("systemctl", "systemd-sysusers", "systemd-tmpfiles", "getent"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)

    def said() -> str:
        argv, environment = ["/bin/sh", str(script), argument], {"PATH": str(tmp_path)}
        return subprocess.run(argv, env=environment, timeout=60, check=True, capture_output=True, text=True).stderr

    # then nothing is said without a copy, and a copy is named with the command that removes it
    assert said() == ""
    (copied / "headway-agent.service").touch()
    assert f"rm {copied}/headway-agent.service && systemctl daemon-reload\n" in said()


@pytest.mark.parametrize("argument", ["remove", "0"])
@pytest.mark.parametrize("watchdog_fails", [False, True])
@pytest.mark.parametrize("runs_here", [True, False])
def test_a_removal_has_the_watchdog_release_held_jobs_for_any_slurm_user(
    argument: str, watchdog_fails: bool, runs_here: bool, tmp_path: Path
) -> None:
    """No user "slurm" exists. Where the watchdog fails, its timer stays, and the way to release the jobs is printed.

    On a machine without Headway's controller, held jobs are those of another machine's.
    """
    called = tmp_path / "called"
    programs = {
        "systemctl": f"case $1 in start) exit {int(watchdog_fails)} ;; is-*) exit {int(not runs_here)} ;; esac",
        "id": "exit 1",
    }
    for name, end in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{called}\n{end}\n')
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "prerm"
    # This machine may run without systemd
    script.write_text((FOLDER / "scripts/headway.prerm").read_text().replace("/run/systemd/system", str(tmp_path)))
    done = subprocess.run(
        ["/bin/sh", script, argument],
        env={"PATH": str(tmp_path)},
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )

    lines = called.read_text().splitlines()
    assert ("systemctl start headway-watchdog.service" in lines) is runs_here
    stays = runs_here and watchdog_fails
    assert ("systemctl disable --now headway-watchdog.timer" in lines) is not stays
    assert ("scontrol release JOBID" in done.stderr) is stays


@pytest.mark.skipif(shutil.which("dpkg-deb") is None or os.geteuid() != 0, reason="needs dpkg, and root")
@pytest.mark.parametrize(("gone", "stays"), [("headway-agent", "headway"), ("headway", "headway-agent")])
def test_a_purge_leaves_the_settings_of_the_other_package(gone: str, stays: str, tmp_path: Path) -> None:
    """The packages are small ones with the real script, which works on a root of its own."""
    root = tmp_path / "root"
    for name in ("updates", "info"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    options = ("--force-script-chrootless", "--force-depends", "--log=/dev/null")

    def dpkg(*words: str) -> None:
        subprocess.run(["dpkg", f"--root={root}", *options, *words], check=True, capture_output=True, timeout=120)

    dpkg("--install", str(small_package(gone, tmp_path)))
    dpkg("--remove", gone)
    dpkg("--install", str(small_package(stays, tmp_path)))
    assert {path.name for path in (root / "etc/headway").iterdir()} == {f"{gone}.toml", f"{stays}.toml"}

    dpkg("--purge", gone)
    assert [path.name for path in (root / "etc/headway").iterdir()] == [f"{stays}.toml"]
    dpkg("--purge", stays)
    assert not (root / "etc/headway").exists()


def small_package(name: str, folder: Path) -> Path:
    """Build a package with one file of settings and the script that runs after a removal."""
    stage = folder / name
    (stage / "DEBIAN").mkdir(parents=True)
    (stage / "etc/headway").mkdir(parents=True)
    (stage / "etc/headway" / f"{name}.toml").write_text("# settings\n")
    (stage / "DEBIAN/conffiles").write_text(f"/etc/headway/{name}.toml\n")
    (stage / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@localhost>\nDescription: x\n"
    )
    script = (FOLDER / "scripts" / f"{name}.postrm").read_text().replace("/run/systemd/system", "/nonexistent")
    for path in ("/etc/headway", "/var/lib"):
        script = script.replace(path, f"$DPKG_ROOT{path}")
    (stage / "DEBIAN/postrm").write_text(script)
    (stage / "DEBIAN/postrm").chmod(0o755)
    for each in (stage, *stage.rglob("*")):
        if each.is_dir():
            each.chmod(0o755)
    built = folder / f"{name}.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "--build", stage, built],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return built
