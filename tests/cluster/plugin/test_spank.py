"""The SPANK plugin on a real Slurm: options of sbatch, salloc and srun, and their words in the comments of jobs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.base.lease import Lease, write_lease
from controller.slurm.configuration.conf import read_slurm_conf
from slurm.minicluster.cluster import MiniCluster
from slurm.prerequisites import missing
from slurm.setup.cli import app
from slurm.setup.spank_build import Toolchain, build, find_toolchain, header_release
from slurm.setup.spank_plan import plugin_folder
from slurm.testbed.installation import Installation
from slurm.testbed.layout import HOOKS
from tests.birthmarks import without_birthmark
from tests.cluster.conftest import unique_name
from tests.releases.mirror import debian_mirror

USER = "daemon"
STRICT = ("-Werror", "-Wpedantic", "-Wconversion", "-Wshadow")


@dataclass
class Site:
    """A cluster with the plugin and job_submit.lua, without a controller unless a test writes a lease."""

    cluster: MiniCluster
    headway: Installation

    def run(self, *argv: str, check: bool = True, **more: object) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(*argv, user=USER, check=check, **more)  # type: ignore[arg-type]

    def sbatch(self, *options: str, script: str = "#!/bin/sh\n", **more: object) -> str:
        """Submit a job on hold. Return its id."""
        return self.run("sbatch", "--parsable", "--hold", *options, stdin=script, **more).stdout.strip()

    def comment(self, job: str) -> str:
        """Return the comment of a job; for an array or a heterogeneous job, one line for each part."""
        return self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%k").stdout.strip("\n")

    def newest_job(self) -> int:
        """Submit a job, and return its id: the largest so far."""
        return int(self.sbatch())

    def output(self, job: str, file: str) -> list[str]:
        """Wait for the end of a job. Return the lines of its output."""
        deadline = time.monotonic() + 60
        while self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").stdout != "COMPLETED\n":
            assert time.monotonic() < deadline, f"job {job} has not completed"
            time.sleep(0.2)
        return (self.cluster.files.work / file).read_text().splitlines()

    def login_host(self, name: str, *settings: str) -> dict[str, str]:
        """Write another slurm.conf, which names a plugstack.conf that does not exist yet. Return the environment for commands."""
        folder = self.headway.folder
        conf = self.cluster.slurm_conf.read_text().replace(str(self.headway.plugstack), str(folder / f"{name}.stack"))
        (folder / f"{name}.conf").write_text("\n".join([conf, *settings, ""]))
        return {"SLURM_CONF": str(folder / f"{name}.conf")}

    def plugstack(self, text: str) -> None:
        self.headway.plugstack.write_text(text)


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    if reasons := missing(spank=True):
        pytest.skip("; ".join(reasons))
    name = unique_name()
    with Installation.prepare(name, with_spank=True) as headway:
        tells = {"tells.sh": '#!/bin/sh\necho "print TaskProlog sees ${HEADWAY_PROFILE:-nothing}"\n'}
        spec = headway.cluster_spec(name=name, nodes=2, gpus=8, added_files=tells)
        spec = replace(spec, task_prolog=spec.home / "tells.sh")
        with MiniCluster(spec) as cluster:
            yield Site(cluster, headway)


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """The shared site; after each test it has the plugin, is idle, and has no controller."""
    before = shared.headway.plugstack.read_text()
    yield shared
    shared.plugstack(before)
    (shared.headway.runtime_dir / "lease").unlink(missing_ok=True)
    shared.cluster.run("scancel", f"--user={USER}")
    shared.cluster.wait_idle()


# --- what users can say


@pytest.mark.parametrize("program", ["sbatch", "salloc", "srun"])
def test_the_options_are_in_the_help(site: Site, program: str) -> None:
    reported = site.run(program, "--help").stdout

    for option in (
        "--headway-preemptible",
        "--headway-min-gpus=N",
        "--headway-max-gpus=N",
        "--headway-profile=off",
    ):
        assert option in reported


@pytest.mark.parametrize(
    ("options", "comment"),
    [
        (("--headway-preemptible",), "headway=preemptible"),
        (("--headway-profile=off", "--comment=my run"), "my run headway=off"),
        (
            ("--headway-max-gpus=8", "--headway-min-gpus", "02", "--headway-preemptible", "--gpus=4"),
            "headway=preemptible+min-gpus:2+max-gpus:8",
        ),
        (("--headway-min-gpus=2", "--comment=headway=off"), "headway=off headway=min-gpus:2"),
        (("--headway-preemptible", "--comment=headway=preemptible"), "headway=preemptible"),
        (("--headway-min-gpus=9", "--headway-max-gpus=4", "--headway-min-gpus=3"), "headway=min-gpus:3+max-gpus:4"),
        (("--headway-preemptible", "--export=NONE"), "headway=preemptible"),
        (("--headway-preemptible", "--array=1,2"), "headway=preemptible"),
        (("--headway-preemptible", "--gpus=1", ":", "--gpus=1"), "headway=preemptible\nheadway=preemptible"),
        (("--comment=my run",), "my run"),
        ((), "(null)"),
    ],
)
def test_options_become_words_of_the_comment(site: Site, options: tuple[str, ...], comment: str) -> None:
    assert site.comment(site.sbatch(*options)) == comment


def test_lines_of_the_script_count_and_the_command_line_more(site: Site) -> None:
    script = "#!/bin/sh\n#SBATCH --headway-preemptible\n#SBATCH --headway-min-gpus=2 --headway-max-gpus=4\n"

    assert site.comment(site.sbatch(script=script)) == "headway=preemptible+min-gpus:2+max-gpus:4"
    # and numbers are compared when all are known: 8 alone would be more than the script's 4
    job = site.sbatch("--headway-min-gpus=8", "--headway-max-gpus=16", script=script)
    assert site.comment(job) == "headway=preemptible+min-gpus:8+max-gpus:16"


def test_a_wrapped_command_and_a_large_environment_change_nothing(site: Site) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(8)}
    done = site.run("sbatch", "--parsable", "--hold", "--headway-preemptible", "--wrap=true", env=large)

    assert site.comment(done.stdout.strip()) == "headway=preemptible"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--headway-min-gpus=many",), "--headway-min-gpus=many is not a number of GPUs: give a whole number from 1"),
        (("--headway-min-gpus=",), "give a whole number from 1 to 999999, such as --headway-min-gpus=2"),
        (("--headway-min-gpus=0",), "--headway-min-gpus=0 is not a number"),
        (("--headway-max-gpus=-1",), "such as --headway-max-gpus=8"),
        (("--headway-max-gpus=1.5",), "--headway-max-gpus=1.5 is not a number"),
        (("--headway-max-gpus=1000000",), "--headway-max-gpus=1000000 is not a number"),
        (("--headway-max-gpus=" + "9" * 300,), "is not a number"),
        (("--headway-profile=on",), "--headway-profile=on: the only valid value is off"),
        (
            ("--headway-min-gpus=8", "--headway-max-gpus=4"),
            "--headway-min-gpus=8 is more than --headway-max-gpus=4: give a smaller minimum or a larger maximum",
        ),
    ],
)
@pytest.mark.parametrize("program", [("sbatch", "--wrap=true"), ("srun", "true"), ("salloc", "true")])
def test_invalid_options_are_refused_before_the_job_is_submitted(
    site: Site, options: tuple[str, ...], problem: str, program: tuple[str, ...]
) -> None:
    before = site.newest_job()

    refused = site.run(program[0], *options, *program[1:], check=False)

    assert (refused.returncode != 0, problem in refused.stderr) == (True, True), refused.stderr
    assert site.newest_job() == before + 1


def test_a_comment_without_room_costs_the_word_and_not_the_job(site: Site) -> None:
    own = "x" * 1020
    done = site.run("sbatch", "--parsable", "--hold", "--headway-preemptible", f"--comment={own}", stdin="#!/bin/sh\n")

    assert "without preemptible" in done.stderr
    assert site.comment(done.stdout.strip()) == own


def test_with_a_controller_the_job_is_held_with_its_options(site: Site) -> None:
    write_lease(site.headway.runtime_dir / "lease", Lease(int(time.time()), 60, ("dl",), 0, 0))

    done = site.run("sbatch", "--parsable", "--gpus=2", "--headway-preemptible", "--headway-max-gpus=8", "--wrap=true")

    job = done.stdout.strip()
    assert site.comment(job) == "headway=preemptible+max-gpus:8"
    shown = site.run("scontrol", "-o", "show", "job", job).stdout
    assert "AdminComment=headway:hold" in without_birthmark(shown)


# --- jobs that are not to be measured


@pytest.mark.parametrize("export", ["ALL", "NONE"])
def test_task_prolog_sees_that_a_job_is_not_to_be_measured(site: Site, export: str) -> None:
    script = f"#!/bin/sh\necho $HEADWAY_PROFILE\nsrun --export={export} /bin/sh -c 'echo $HEADWAY_PROFILE'\n"
    job = site.sbatch("--headway-profile=off", f"--export={export}", "--output=profile.log", script=script)
    site.run("scontrol", "release", job)
    if export == "ALL":
        assert site.output(job, "profile.log") == ["TaskProlog sees off", "off"] * 2
    else:  # a step without its environment lacks this variable too; the batch script, and so the job, has it
        assert site.output(job, "profile.log")[:2] == ["TaskProlog sees off", "off"]

    shell = ("/bin/sh", "-c", "echo $HEADWAY_PROFILE")
    assert (
        site.run("srun", "--headway-profile=off", f"--export={export}", *shell).stdout == "TaskProlog sees off\noff\n"
    )
    assert site.run("srun", f"--export={export}", *shell).stdout == "TaskProlog sees nothing\n\n"
    inside = site.run("salloc", "--headway-profile=off", "srun", *shell)
    assert inside.stdout == "TaskProlog sees off\noff\n"


def test_jobs_submitted_from_inside_a_job_do_not_inherit_its_options(site: Site) -> None:
    submit = "sbatch --parsable --hold --comment=child --wrap=true"

    job = site.sbatch(
        "--headway-preemptible", "--headway-min-gpus=2", "--output=parent.log", script=f"#!/bin/sh\n{submit}\n"
    )
    site.run("scontrol", "release", job)
    (by_job,) = [line for line in site.output(job, "parent.log") if line.isdecimal()]
    by_shell = site.run("salloc", "--headway-preemptible", "sh", "-c", submit).stdout.strip()

    assert site.comment(job) == "headway=preemptible+min-gpus:2"
    assert [site.comment(by_job), site.comment(by_shell)] == ["child", "child"]


# --- fail-open


@pytest.fixture(scope="module")
def broken(shared: Site) -> dict[str, Path]:
    """Plugins that do not work, by the defect."""
    folder = shared.cluster.directory / HOOKS
    source = folder / "fails.c"
    source.write_text(
        "#include <slurm/spank.h>\nSPANK_PLUGIN(fails, 1)\n"
        "int slurm_spank_init(spank_t s, int c, char *v[]) { (void)s; (void)c; (void)v; return -1; }\n"
        "int slurm_spank_init_post_opt(spank_t s, int c, char *v[]) { (void)s; (void)c; (void)v; return -1; }\n"
    )
    other = folder / "other-release" / "slurm"
    other.mkdir(parents=True)
    (other / "slurm_version.h").write_text("#define SLURM_VERSION_NUMBER 0x180b05\n")
    made = {"absent": folder / "absent.so", "not a plugin": folder / "task_prolog.sh"}
    for name, flags in {"fails": (), "another release's": (f"-I{other.parent}",)}.items():
        made[name] = folder / f"{name.split()[0]}.so"
        command = ("cc", "-shared", "-fPIC", *flags, str(source), "-o", str(made[name]))
        subprocess.run(command, check=True, timeout=60)
    return made


@pytest.mark.parametrize("what", ["absent", "not a plugin", "fails", "another release's"])
def test_a_plugin_that_does_not_work_stops_no_job(site: Site, broken: dict[str, Path], what: str) -> None:
    site.plugstack(f"optional {broken[what]}\n")

    job = site.run("sbatch", "--parsable", "--output=broken.log", "--wrap=srun echo ran").stdout.strip()

    assert site.output(job, "broken.log")[-1] == "ran"
    assert site.run("srun", "echo", "ran").stdout.splitlines()[-1] == "ran"
    assert site.run("salloc", "echo", "ran").stdout == "ran\n"
    # and a submission with an option of the missing plugin is refused
    assert "unrecognized option" in site.run("sbatch", "--headway-preemptible", "--wrap=true", check=False).stderr


def test_nodes_that_lack_the_plugin_run_jobs_with_its_options(site: Site) -> None:
    # Given a plugin that is only where jobs are submitted
    login = site.login_host("login")
    (site.headway.folder / "login.stack").write_text(site.headway.plugstack.read_text())
    site.plugstack("")

    # Then sbatch's and srun's options do what they can without it
    done = site.run(
        "sbatch", "--parsable", "--headway-preemptible", "--headway-profile=off", "--output=lacking.log",
        "--wrap=srun sh -c 'echo $HEADWAY_PROFILE'", env=login,
    )  # fmt: skip
    job = done.stdout.strip()
    assert site.output(job, "lacking.log")[-1] == "off"
    assert site.comment(job) == "headway=off+preemptible"
    assert "ran" in site.run("srun", "--headway-preemptible", "echo", "ran", env=login).stdout


# --- building it


def test_headway_setup_sees_that_it_is_in_place(site: Site) -> None:
    words = ("spank", "--check", "--plugstack", "--slurm-conf", str(site.cluster.slurm_conf))

    result = CliRunner().invoke(app, [*words, "--plugin-dir", str(site.headway.folder)])

    assert (result.exit_code, result.output) == (0, "everything is in place\n")


def test_headway_setup_puts_it_where_slurm_finds_it_by_its_name(site: Site) -> None:
    # Given a host whose Slurm has a second folder for plugins
    plugins = site.headway.folder / "plugins"
    plugins.mkdir()
    usual = plugin_folder(read_slurm_conf(site.cluster.slurm_conf))
    host = site.login_host("host", f"PluginDir={plugins}:{usual}")
    assert "--headway" not in site.run("sbatch", "--help", env=host).stdout

    result = CliRunner().invoke(app, ["spank", "--apply", "--plugstack", "--slurm-conf", host["SLURM_CONF"]])

    assert result.exit_code == 0, result.output
    assert "optional headway.so\n" in (site.headway.folder / "host.stack").read_text()
    assert "--headway-preemptible" in site.run("sbatch", "--help", env=host).stdout
    assert site.comment(site.sbatch("--headway-preemptible", env=host)) == "headway=preemptible"


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    tools = find_toolchain()
    if not isinstance(tools, Toolchain):
        pytest.skip("; ".join(tools))
    build(tools, tmp_path / "headway.so", STRICT)


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "release"), [("bookworm", "22.05"), ("trixie", "24.11"), ("sid", "26.05")])
def test_it_builds_without_a_warning_against_the_headers_of(suite: str, release: str, tmp_path: Path) -> None:
    include = debian_headers(suite, tmp_path)
    tools = find_toolchain(include)
    if not isinstance(tools, Toolchain):
        pytest.skip("; ".join(tools))

    build(tools, tmp_path / "headway.so", STRICT)

    # sid moves on; the others stay
    assert tools.release == release or (suite == "sid" and tools.release > release)


def debian_headers(suite: str, folder: Path) -> Path:
    """Slurm's headers as that suite of Debian has them, from the mirror that apt uses here; without one the test is skipped."""
    mirror = debian_mirror()
    if mirror is None:
        pytest.skip("apt names no mirror of Debian here; `apt-get update` reads which it has")
    sources = folder / "sources.list"
    sources.write_text(f"deb {mirror} {suite} main\n")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": folder / "state",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
    for words in (("update", "--error-on=any"), ("download", "libslurm-dev")):
        done = subprocess.run([*apt, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode != 0:
            pytest.skip(f"Debian's mirror gives no libslurm-dev of {suite}: {done.stderr.strip()[-300:]}")
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True, timeout=60)
    include = folder / "usr" / "include"
    assert header_release(include) is not None
    return include
