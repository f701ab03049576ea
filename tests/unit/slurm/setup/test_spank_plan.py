"""headway-setup spank: what it would build and write, and what it leaves alone. Compiler and Slurm are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.slurm.configuration.conf import read_slurm_conf
from slurm.setup import files as files_module
from slurm.setup.cli import app
from slurm.setup.spank_build import build_id_of, header_release, source_digest, source_path
from slurm.setup.spank_plan import find_line, plugin_folder

HEADER = "#define SLURM_VERSION_NUMBER 0x{:02x}{:02x}05\n"
COMPILER = """#!/bin/sh
# Writes what the real one would leave of -DHEADWAY_SOURCE, and nothing else.
for word in "$@"; do
    case $word in
    -DHEADWAY_SOURCE=*) mark=${word#-DHEADWAY_SOURCE=\\"} ;;
    *) target=$word ;;
    esac
done
printf 'ELF headway-spank-source:%s\\0' "${mark%\\"}" >"$target"
"""


class Machine:
    """A machine where jobs are submitted, with a Slurm, its headers and a compiler."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.conf = folder / "slurm.conf"
        self.plugins = folder / "plugins"
        self.plugin = self.plugins / "headway.so"
        self.plugstack = folder / "plugstack.conf"
        self.include = folder / "include"
        self._programs = folder / "bin"
        self._programs.mkdir()
        self.conf.write_text(f"ClusterName=lab\nPluginDir={self.plugins}\n")
        monkeypatch.setenv("PATH", str(self._programs), prepend=":")
        self.slurm(22, 5)
        self.headers(22, 5)
        self.compiler(COMPILER)

    def slurm(self, major: int, minor: int) -> None:
        self._program("scontrol", f"#!/bin/sh\necho slurm-wlm {major}.{minor:02d}.8\n")

    def no_slurm(self) -> None:
        for name in ("scontrol", "slurmd"):
            self._program(name, "#!/bin/sh\nexit 1\n")

    def headers(self, major: int, minor: int) -> None:
        folder = self.include / "slurm"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spank.h").touch()
        (folder / "slurm_version.h").write_text(HEADER.format(major, minor))

    def compiler(self, script: str) -> None:
        self._monkeypatch.setenv("CC", str(self._program("fake-cc", script)))

    def no_compiler(self) -> None:
        self._monkeypatch.setenv("CC", "/nonexistent/cc")

    def setup(self, *options: str) -> Result:
        return CliRunner().invoke(
            app, ["spank", "--slurm-conf", str(self.conf), "--include", str(self.include), *options]
        )

    def _program(self, name: str, text: str) -> Path:
        path = self._programs / name
        path.write_text(text)
        path.chmod(0o755)
        return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("options", [(), ("--check",), ("--check", "--json"), ("--plugstack",)])
def test_looking_builds_and_writes_nothing(machine: Machine, options: tuple[str, ...]) -> None:
    result = machine.setup(*options)

    assert result.exit_code == 1
    assert str(machine.plugin) in result.output
    assert not machine.plugins.exists()
    assert not machine.plugstack.exists()


def test_applying_builds_the_plugin_and_then_nothing_is_left_to_do(machine: Machine) -> None:
    applied = machine.setup("--apply")

    assert applied.exit_code == 0, applied.output
    assert str(build_id_of(machine.plugin)) == f"{source_digest()} for 22.05"
    assert machine.plugin.stat().st_mode & 0o777 == 0o644
    assert list(machine.plugins.iterdir()) == [machine.plugin]
    again = machine.setup("--check")
    assert (again.exit_code, "everything is in place" in again.output) == (0, True)


def test_plugstack_conf_is_only_changed_when_asked_for(machine: Machine) -> None:
    machine.plugstack.write_text("required x11.so")

    plain = machine.setup("--apply")
    assert (plain.exit_code, machine.plugstack.read_text()) == (0, "required x11.so")
    assert "headway-setup spank --plugstack --apply" in plain.output

    asked = json.loads(machine.setup("--apply", "--plugstack", "--json").output)
    assert machine.plugstack.read_text() == "required x11.so\n# Headway (headway-setup spank)\noptional headway.so\n"
    assert Path(asked["changes"][0]["backup"]).read_text() == "required x11.so"
    assert machine.setup("--check", "--plugstack").exit_code == 0
    assert any(str(machine.plugstack) in step for step in asked["next_steps"])


def test_a_plugin_elsewhere_is_named_by_its_path(machine: Machine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "shared"

    assert machine.setup("--apply", "--plugstack", "--plugin-dir", str(elsewhere)).exit_code == 0
    assert f"optional {elsewhere}/headway.so\n" in machine.plugstack.read_text()


def test_plugstack_config_says_where_the_line_belongs(machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "stack.conf"
    machine.conf.write_text(machine.conf.read_text() + f"PlugStackConfig={other}\n")

    assert machine.setup("--apply", "--plugstack").exit_code == 0
    assert other.is_file()
    assert not machine.plugstack.exists()


# --- a machine to which slurmctld sends the configuration


@pytest.fixture
def configless(machine: Machine, tmp_path: Path) -> Machine:
    """A compute node without files of its own: /run/slurm/conf is a link to a folder of slurmd."""
    sent = tmp_path / "spool" / "conf-cache"
    sent.mkdir(parents=True)
    machine.conf.rename(sent / "slurm.conf")
    link = tmp_path / "run" / "slurm" / "conf"
    link.parent.mkdir(parents=True)
    link.symlink_to(sent)
    machine.conf, machine.plugstack = link / "slurm.conf", link / "plugstack.conf"
    return machine


def test_where_slurmctld_sends_plugstack_conf_the_line_belongs_to_its_machine(configless: Machine) -> None:
    where = "plugstack.conf beside slurm.conf on slurmctld's machine"
    # when the plugin is built, then a note says where the line belongs
    plain = configless.setup("--apply")
    assert (plain.exit_code, configless.plugin.is_file()) == (0, True)
    assert where in plain.output
    assert "headway-setup spank --plugstack --apply" not in plain.output
    # when the line is asked for, then nothing is written into the copy, which the next one replaces
    asked = configless.setup("--apply", "--plugstack")
    assert (asked.exit_code, configless.plugstack.exists()) == (1, False)
    assert f"needs your decision: plugstack.conf: {configless.plugstack} is a copy" in asked.output
    assert where in asked.output
    assert "scontrol reconfigure: optional headway.so\n" in asked.output
    # when slurmctld has sent the line, then nothing is left to do
    configless.plugstack.write_text("optional headway.so\n")
    assert configless.setup("--check", "--plugstack").exit_code == 0


def test_where_slurmctld_sends_slurm_conf_plugstack_config_is_a_file_of_the_machine(
    configless: Machine, tmp_path: Path
) -> None:
    other = tmp_path / "etc" / "plugstack.conf"
    configless.conf.write_text(configless.conf.read_text() + f"PlugStackConfig={other}\n")

    assert configless.setup("--apply", "--plugstack").exit_code == 0
    assert "optional headway.so" in other.read_text()


def test_slurm_conf_is_not_changed_where_slurmctld_sends_it(configless: Machine) -> None:
    before = configless.conf.read_text()
    for options in (("--apply",), ("--check",), ("--undo", "--apply")):
        result = CliRunner().invoke(app, ["slurm", "--slurm-conf", str(configless.conf), *options])
        assert (result.exit_code, configless.conf.read_text()) == (2, before)
        assert "run this command on slurmctld's machine" in result.output
    assert [path.name for path in configless.conf.parent.iterdir()] == ["slurm.conf"]


def test_the_copy_of_slurmd_is_found_where_a_machine_has_no_slurm_conf(
    configless: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    assert files_module.USUAL_PLACES[-1] == Path("/run/slurm/conf/slurm.conf")
    assert files_module.is_sent(files_module.USUAL_PLACES[-1])
    monkeypatch.setattr(files_module, "USUAL_PLACES", (Path("/nonexistent/slurm.conf"), configless.conf))
    assert files_module.default_slurm_conf() == configless.conf


# --- what is missing


def test_without_a_compiler_or_headers_nothing_is_written_and_the_mend_is_shown(machine: Machine) -> None:
    machine.no_compiler()
    (machine.include / "slurm" / "spank.h").unlink()

    result = machine.setup("--apply", "--plugstack", "--json")

    answer = json.loads(result.output)
    assert (result.exit_code, answer["changes"], answer["build"]) == (1, [], None)
    texts = [conflict["text"] for conflict in answer["conflicts"]]
    assert ["install the packages gcc libc6-dev" in texts[0], "libslurm-dev" in texts[1]] == [True, True]
    assert not machine.plugin.exists()
    assert not machine.plugstack.exists()


def test_headers_of_another_release_are_refused(machine: Machine) -> None:
    machine.headers(24, 11)

    result = machine.setup("--apply")

    assert result.exit_code == 1
    assert "belong to Slurm 24.11, but this machine runs Slurm 22.05" in result.output
    assert not machine.plugin.exists()


def test_a_plugin_that_was_built_elsewhere_needs_no_compiler(machine: Machine) -> None:
    machine.setup("--apply")
    machine.no_compiler()

    assert machine.setup("--check").exit_code == 0


def test_after_an_upgrade_of_slurm_it_is_built_again(machine: Machine) -> None:
    machine.setup("--apply")
    machine.slurm(24, 11)
    machine.headers(24, 11)

    assert machine.setup("--check").exit_code == 1
    assert machine.setup("--apply").exit_code == 0
    assert str(build_id_of(machine.plugin)) == f"{source_digest()} for 24.11"


@pytest.mark.parametrize("mark", ["unknown", "0123456789abcdef for 22.05"])
def test_one_of_another_source_is_built_again(machine: Machine, mark: str) -> None:
    machine.plugins.mkdir()
    machine.plugin.write_bytes(b"ELF headway-spank-source:" + mark.encode() + b"\0")

    assert machine.setup("--check").exit_code == 1


def test_a_slurm_that_does_not_tell_its_release_is_taken_for_that_of_the_headers(machine: Machine) -> None:
    machine.no_slurm()

    applied = machine.setup("--apply")

    assert (applied.exit_code, "could not be found" in applied.output) == (0, True)
    assert machine.setup("--check").exit_code == 0


def test_a_file_of_somebody_elses_stays(machine: Machine) -> None:
    machine.plugins.mkdir()
    machine.plugin.write_text("theirs")

    result = machine.setup("--apply")

    assert (result.exit_code, machine.plugin.read_text()) == (2, "theirs")
    assert "--plugin-dir" in result.output


def test_a_build_that_fails_leaves_everything_as_it_was(machine: Machine) -> None:
    machine.setup("--apply")
    before = machine.plugin.read_bytes()
    machine.slurm(24, 11)
    machine.headers(24, 11)
    machine.compiler("#!/bin/sh\necho 'spank.h: error: no such thing' >&2\nexit 1\n")

    result = machine.setup("--apply", "--plugstack")

    assert (result.exit_code, "no such thing" in result.output) == (2, True)
    assert machine.plugin.read_bytes() == before
    assert list(machine.plugins.iterdir()) == [machine.plugin]
    assert not machine.plugstack.exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--plugin-dir", "plugins"), "--plugin-dir plugins: give an absolute path"),
        (("--plugin-dir", "/a b"), "--plugin-dir /a b: give an absolute path"),
    ],
)
def test_what_cannot_be_determined_is_said_with_the_mend(
    machine: Machine, options: tuple[str, ...], problem: str
) -> None:
    result, as_json = machine.setup(*options), machine.setup(*options, "--json")

    assert (result.exit_code, as_json.exit_code) == (2, 2)
    assert problem in result.output
    assert problem in json.loads(as_json.output)["error"]


def test_check_and_apply_are_one_or_the_other(machine: Machine) -> None:
    assert machine.setup("--check", "--apply").exit_code == 2


# --- where things are


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("optional headway.so\n", "optional"),
        ("  optional\t/opt/x/headway.so debug=1 # ours\n", "optional"),
        ("required headway.so\n", "required"),
        ("# optional headway.so\n", None),
        ("optional headway.so.old\noptional nothing-of-headway.so\n", None),
        ("include stack.d/*.conf\n", "optional"),
        ("include plugstack.conf\n", None),
        ("include nothing/*.conf\n", None),
        ("", None),
    ],
)
def test_a_line_is_found_wherever_slurm_finds_it(tmp_path: Path, text: str, word: str | None) -> None:
    (tmp_path / "stack.d").mkdir()
    (tmp_path / "stack.d" / "a.conf").write_text("optional x11.so\n")
    (tmp_path / "stack.d" / "b.conf").write_text("optional headway.so\n")
    plugstack = tmp_path / "plugstack.conf"
    plugstack.write_text(text)

    assert find_line(plugstack, read, files) == word


def test_required_is_for_the_site_to_take_back(machine: Machine) -> None:
    machine.plugstack.write_text("required headway.so\n")

    result = machine.setup("--apply", "--plugstack")

    assert (result.exit_code, machine.plugstack.read_text()) == (1, "required headway.so\n")
    assert "write `optional`" in result.output


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ((), None),
        (("usr/lib/x86_64-linux-gnu/slurm-wlm",), "usr/lib/x86_64-linux-gnu/slurm-wlm"),
        (("usr/lib64/slurm",), "usr/lib64/slurm"),
        (("usr/lib64/slurm", "usr/local/lib/slurm"), None),
    ],
)
def test_slurms_plugins_are_looked_for_where_packages_put_them(
    tmp_path: Path, there: tuple[str, ...], found: str | None
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=lab\n")
    (tmp_path / "usr/lib/slurm").mkdir(parents=True)  # empty: nothing of Slurm's
    for folder in there:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "auth_munge.so").touch()

    assert plugin_folder(read_slurm_conf(conf), tmp_path) == (tmp_path / found if found else None)


@pytest.mark.parametrize(
    ("number", "release"), [("0x160508", "22.05"), ("0x180b05", "24.11"), ("0x1a0505", "26.05"), ("22", None)]
)
def test_the_release_of_headers(tmp_path: Path, number: str, release: str | None) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "spank.h").touch()
    (folder / "slurm_version.h").write_text(f"/* no */\n#define SLURM_VERSION_NUMBER {number}\n")

    assert header_release(tmp_path) == release


def test_the_source_is_found_where_the_package_is_installed() -> None:
    assert "SPANK_PLUGIN(headway" in source_path().read_text()
