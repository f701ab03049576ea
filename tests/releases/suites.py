"""Parts that are tests of this repository, on mini-clusters inside: with the Python of this process, which is mounted."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.releases.container import CHECKOUT, Container, ContainerError, Mount
from tests.releases.release import Verdict
from tests.releases.root import BUILD_PACKAGES

RESULTS = Path("/srv/results")
"""Folder of the results, inside."""

TESTS: Mapping[str, tuple[str, ...]] = {
    "contract": ("tests/cluster/scheduling/test_slurm_contract.py",),
    "spank": ("tests/cluster/plugin/test_spank.py",),
    "agents": ("tests/cluster/agents/test_agent.py", "tests/cluster/preemption/test_preemption.py"),
}
"""Part → files of its tests."""

USERS = ("daemon", "bin")
"""Users whose jobs the tests run. They get a shell: for `--export=NONE` Slurm takes a user's environment from a login, and
26.05 holds the job if that fails."""

PARITY = ("GPUs", "Nodes, tasks and CPUs", "Order of the queue", "salloc, srun and other options")
"""Subjects of the parity suite that are played by default."""
_SUITE_S = 3000.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one part."""

    verdict: Verdict
    detail: str
    failures: tuple[str, ...] = ()


def python_mounts() -> list[Mount]:
    """Return what the Python of this process consists of: its environment, and the installation below that."""
    found = [Path(sys.prefix).resolve()]
    base = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found += [base / "lib" / version, base / "bin" / version] if base == Path("/usr") else [base]
    return [Mount(path, path) for path in dict.fromkeys(found)]


def open_folders(root: Path, mounts: list[Mount]) -> None:
    """Let every user inside enter the folders above these mounts: jobs of users run the same Python."""
    for mount in mounts:
        folder = root
        for part in mount.target.parent.parts[1:]:
            folder = folder / part
            folder.mkdir(exist_ok=True)
            folder.chmod(folder.stat().st_mode | 0o711)


def environment() -> dict[str, str]:
    """Return the variables with which tests run inside."""
    packages = (CHECKOUT, CHECKOUT / "headway_job" / "src", CHECKOUT / "headway_client" / "src")
    programs = Path(sys.prefix).resolve() / "bin"
    return {
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "OMP_NUM_THREADS": "1",
    }


def prepare(container: Container) -> None:
    """Make a machine on which mini-clusters can run jobs of USERS. Raises ContainerError."""
    done = container.bash(" && ".join(f"usermod --shell /bin/sh {user}" for user in USERS), timeout_s=60)
    if done.status != 0:
        raise ContainerError(f"the machine cannot be prepared: {done.output[-300:]}")


def play(container: Container, part: str, release: str, parity: tuple[str, ...], results: Path) -> Outcome:
    """Run one part. `results` is the folder of the results on this machine."""
    if part == "parity":
        return _parity(container, release, parity, results)
    if part == "spank":
        done = container.bash(
            f"apt-get -q install -y --no-install-recommends {' '.join(BUILD_PACKAGES)}", timeout_s=600
        )
        if done.status != 0:
            return Outcome("failed", f"no compiler: {done.output[-300:]}")
    return _pytest(container, part, results)


def _pytest(container: Container, part: str, results: Path) -> Outcome:
    report = results / f"{part}.xml"
    report.unlink(missing_ok=True)
    options = ("-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={RESULTS / report.name}")
    python = str(Path(sys.prefix).resolve() / "bin" / "python")
    done = container.run(
        python, "-m", "pytest", *options, *TESTS[part], timeout_s=_SUITE_S, env=environment(), cwd=str(CHECKOUT)
    )
    (results / f"{part}.log").write_text(done.output)
    if not report.exists():
        return Outcome("failed", f"status {done.status}: {' | '.join(done.output.strip().splitlines()[-4:])}")
    return verdict(report.read_text())


def verdict(junit: str) -> Outcome:
    """Return the outcome of a run of pytest, from its report. A run in which every test was skipped is skipped."""
    cases = list(ET.fromstring(junit).iter("testcase"))
    failures = tuple(_failures(cases))
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - skipped - len(failures)
    detail = ", ".join(
        f"{count} {word}"
        for count, word in ((passed, "passed"), (len(failures), "failed"), (skipped, "skipped"))
        if count
    )
    if failures or not cases:
        return Outcome("failed", detail or "no tests", failures)
    return Outcome("ok" if passed else "skipped", detail)


def _failures(cases: list[ET.Element]) -> Iterator[str]:
    for case in cases:
        for kind in ("failure", "error"):
            found = case.find(kind)
            if found is not None:
                first = (found.get("message") or "").splitlines()
                yield f"{case.get('name')}: {first[0] if first else kind}"
                break


def _parity(container: Container, release: str, subjects: tuple[str, ...], results: Path) -> Outcome:
    python = str(Path(sys.prefix).resolve() / "bin" / "python")
    only = [word for subject in subjects for word in ("--only", subject)]
    (results / "parity.json").unlink(missing_ok=True)  # of an earlier run, of another commit perhaps
    record = ("--record", str(RESULTS / "parity.json"))
    done = container.run(
        python, "-m", "tests.parity", "--release", release, *only, *record, timeout_s=_SUITE_S, env=environment(),
        cwd=str(CHECKOUT),
    )  # fmt: skip
    (results / "parity.log").write_text(done.output)
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return Outcome("ok" if done.status == 0 else "failed", f"{' '.join(subjects)}: {last}" if done.status < 2 else last)
