"""Everything that the documents mention exists: links, commands, settings, metrics, examples."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer.main

from controller.base.config import load_settings
from controller.cycle.decision.plan import Plan, make_plan
from controller.daemon import config_docs
from controller.slurm.embedded.loading import load_cluster
from controller.state.journal_schema import SCHEMA
from controller.web.settings import load_settings as load_web_settings
from nodeagent.config import load_settings as load_agent_settings
from nodeagent.metrics.node_families import node_families
from nodeagent.wire.report import NodeReport, SocketCounters
from policies.api import PolicySpec
from policies.serving.client import PolicyClient
from simulator.runs.sweep import load_sweep
from tests.unit.controller.web.screenshots import SHOTS
from tests.unit.docs.monitoring.exported import exported, names
from tests.unit.policies.processes import eventually, running
from tests.unit.policies.states.cluster import Job, Node, cluster

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}|\t)\S[^\n]*\n)+", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_TEST = re.compile(r"(tests/[\w/.]+)(?: -k (\w+))?")


@dataclass(frozen=True)
class Page:
    """One document: its code blocks, and the text between them."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def prose(self) -> str:
        return _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> list[str]:
        """Return the fenced blocks in these languages; all blocks, when no language is named."""
        return [m["text"] for m in _FENCE.finditer(self.text) if not languages or m["language"] in languages]

    def command_lines(self) -> Iterator[str]:
        """Lines of code that may be commands, and code spans within sentences."""
        for block in [*self.blocks(), *(m[0] for m in _INDENTED.finditer(self.prose))]:
            yield from block.replace("\\\n", " ").splitlines()
        yield from (m[1] for m in _SPAN.finditer(self.prose))


pages = pytest.mark.parametrize("page", [Page(path) for path in PAGES], ids=lambda page: page.name)


# --- links


def anchors(text: str) -> set[str]:
    """Return anchors as GitHub makes them: lower case, no punctuation but - and _, hyphens for blanks, numbers on repetitions."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        base = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        slug, number = base, 0
        while slug in found:
            number += 1
            slug = f"{base}-{number}"
        found.add(slug)
    return found


@pages
def test_every_link_leads_somewhere(page: Page) -> None:
    broken = []
    for target in _LINK.findall(page.prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.exists() or not path.is_relative_to(ROOT) or (anchor and anchor not in anchors(path.read_text())):
            broken.append(target)

    assert broken == []


@pages
def test_every_test_that_is_named_is_there(page: Page) -> None:
    there = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name, part in _TEST.findall(page.text):
        assert (ROOT / name.rstrip("./")).exists(), name
        assert not part or re.search(rf"def test_\w*{part}", there), part


# --- commands


@cache
def programs() -> dict[str, Any]:
    """Our programs by name, with typer's description of their commands."""
    ours = [entry for entry in entry_points(group="console_scripts") if entry.name.startswith("headway")]
    modules = {entry.name: importlib.import_module(entry.module) for entry in ours}
    return {name: typer.main.get_command(module.app) for name, module in modules.items()}


def our_commands(line: str) -> Iterator[list[str]]:
    """Words of each command of ours in a line: after a prompt, `sudo`, a path, and between pipes."""
    line = re.sub(r"^\s*[$#] ", "", line)
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return  # no command: an unclosed quotation mark
    command: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set(";&|()<>"):
            command.append(word)
            continue
        while command and (command[0] == "sudo" or re.match(r"\w+=", command[0])):
            command = command[1:]
        if command and Path(command[0]).name in programs():
            yield [Path(command[0]).name, *command[1:]]
        command = []


def problem(words: list[str]) -> str:
    """Return the problem with a command line of Headway; empty when there is none."""
    command, rest = programs()[words[0]], words[1:]
    path = [words[0]]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if path == ["headway", "profile"] and re.fullmatch(r"JOBID|\d[\d_]*", rest[0]):
            rest = ["request", *rest]
        found = command.commands.get(rest[0])
        if found is None:
            return f"{' '.join(path)} has no command {rest[0]}"
        command, path, rest = found, [*path, rest[0]], rest[1:]
    rest = rest[: rest.index("--")] if "--" in rest else rest  # what follows is another program's
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in flags]
    return f"{' '.join(path)} does not take {unknown[0]}" if unknown else ""


@pages
def test_every_command_of_ours_exists_with_its_flags(page: Page) -> None:
    commands = [words for line in page.command_lines() for words in our_commands(line)]

    assert [text for words in commands if (text := problem(words))] == []


@pages
def test_every_module_and_make_target_that_is_to_be_run_exists(page: Page) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in page.command_lines():
        for module in re.findall(r"python3? -m ([\w.]+)", line):
            assert importlib.util.find_spec(module) is not None, line
        for target in re.findall(r"^\s*(?:[$#] )?make ([\w-]+)", line):
            assert target in targets, line


_TREE = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "build"}


def installed_files() -> dict[str, list[Path]]:
    """Files of each folder of the virtual environment that gets data files, by that folder."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    return {folder: [path for pattern in patterns for path in ROOT.glob(pattern)] for folder, patterns in table.items()}


def missing_file(word: str) -> bool:
    """Return whether a command's word names a file of this repository, or one that Headway installs, that does not exist."""
    word = word.strip("\"';")
    if found := re.search(r"(?:^|/opt/headway/)(share/headway/[\w.*/-]+|example/[\w.*/-]+)", word):
        installed = found[1] if found[1].startswith("share/") else f"share/headway/{found[1]}"
        folder, _, pattern = installed.rpartition("/")
        files = installed_files()
        return installed not in files and not any(path.match(pattern) for path in files.get(folder, ()))
    if word.partition("/")[0] in _TREE and "/" in word and re.fullmatch(r"[\w.*/-]+", word):
        return not any(ROOT.glob(word.rstrip("/")))
    return False


@pages
def test_every_file_that_a_command_names_exists(page: Page) -> None:
    words = [word for block in page.blocks("sh", "bash") for line in block.splitlines() for word in line.split()]

    assert [word for word in words if missing_file(word)] == []


def test_commands_are_found_and_judged() -> None:
    # The tests above would pass if nothing were found.
    assert list(our_commands("$ sudo /opt/headway/bin/headway status --json | head && x=1 headway-setup slurm")) == [
        ["headway", "status", "--json"],
        ["headway-setup", "slurm"],
    ]
    assert list(our_commands("systemctl restart headway-policy")) == []
    assert problem(["headway", "policy", "use", "127.0.0.1:1"]) == ""
    assert problem(["headway", "policy", "drop"]) == "headway policy has no command drop"
    assert problem(["headway-minicluster", "exec", "n1", "--", "nvidia-smi", "--list"]) == ""
    assert problem(["headway", "queue", "--all"]) == "headway queue does not take --all"
    assert missing_file("slurm/plugin/example/nothing.toml") and not missing_file("slurm/plugin/example/agent.toml")
    assert missing_file("/opt/headway/share/headway/systemd/x.service")
    assert not missing_file("/opt/headway/share/headway/systemd/headway-agent.service")
    readme = [words for line in Page(ROOT / "README.md").command_lines() for words in our_commands(line)]
    assert ["headway", "doctor"] in readme


# --- settings, metrics, tables


@pages
def test_every_toml_block_loads(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "example.toml"
    for block in page.blocks("toml"):
        path.write_text(block)
        keys = tomllib.loads(block)
        partitions = keys.get("partitions", ())
        if "controller_address" in keys:
            load_agent_settings(path)
        elif keys.keys() & {"proxy_addresses", "token_file"}:
            load_web_settings(path)
        elif "sweep" in keys:
            load_sweep(path, {}, None)
        elif all(isinstance(name, str) for name in partitions) and partitions:
            load_settings(path)
        else:
            load_cluster(path)


def test_the_configuration_reference_is_up_to_date() -> None:
    written = (ROOT / config_docs.TARGET).read_text()

    assert written == config_docs.render(), "run `python -m controller.daemon.config_docs` and commit"


async def test_every_metric_is_in_operations_and_nothing_else(tmp_path: Path) -> None:
    # Given a controller with every metric
    there = names(await exported(tmp_path))
    # and the metrics of a node
    report = NodeReport("n1", 0.0, 0, None, (), None, (), SocketCounters(0, 0, 0, 0, 0, 0, 0))
    there |= {family.name for family in node_families(report)}
    # Then the document names the same
    operations = (ROOT / "docs/operations.md").read_text()
    section = operations[operations.index("\n## Metrics") : operations.index("\n## Logs")]
    reported = set(re.findall(r"`(headway_\w+)", section))

    assert reported == there


def test_every_table_of_the_journal_is_in_architecture() -> None:
    architecture = (ROOT / "docs/architecture.md").read_text()
    section = architecture[architecture.index("\n## The journal") : architecture.index("\n## What happens at each")]

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(
        re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", SCHEMA)
    )


# --- examples


def test_the_policy_in_the_readme_is_the_example() -> None:
    (block,) = Page(ROOT / "README.md").blocks("python")

    assert block == (ROOT / "examples/newest-first/newest_first.py").read_text()


def test_every_picture_of_the_page_is_shown_and_made_by_the_script() -> None:
    pictures = {path.stem for path in (ROOT / "docs").glob("web-*.png")}
    shown = {
        name
        for path in ("README.md", "docs/web.md")
        for name in re.findall(r"(web-\w+)\.png", (ROOT / path).read_text())
    }

    assert pictures == shown == set(SHOTS)


def test_the_tour_of_the_readme_has_the_commands_of_its_script() -> None:
    (tour,) = (block for block in Page(ROOT / "README.md").blocks() if block.startswith("$ sbatch"))
    commands = (ROOT / "examples/tour/commands.txt").read_text().splitlines()

    assert re.findall(r"^\$ (.*)$", tour, re.M) == commands
    assert max(map(len, tour.splitlines())) <= 80


def test_the_script_for_podman_on_the_page_is_the_example() -> None:
    blocks = Page(ROOT / "docs/containers.md").blocks("sh")

    assert (ROOT / "examples/containers/podman_task.sh").read_text() in blocks


def test_every_runtime_that_was_not_tried_is_marked() -> None:
    _, _, rest = (ROOT / "docs/containers.md").read_text().partition("## Other runtimes")
    introductions = re.findall(r"^(.+?)\n\n```sh", rest, re.M)
    assert len(introductions) == 3
    assert all("(not tried)" in text for text in introductions)


def test_the_example_over_grpc_imports_nothing_of_ours() -> None:
    tree = ast.parse((ROOT / "examples/over-grpc/server.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}

    assert {name for name in imported if name.partition(".")[0] in {"policies", "controller", "slurm"}} == set()
    assert {name for name in imported if name.startswith("protos")} == {"protos.headway.v1"}


async def test_the_example_over_grpc_decides_what_a_controller_accepts(tmp_path: Path) -> None:
    # Given a cluster with every case that the example distinguishes
    state = cluster(
        [Node(cpus=16), Node(available=False), Node(foreign_gpus=4), Node(memory_mib=1000)],
        [
            Job(gpus=6, occupied={0: 6}, cpus_per_gpu=2.0, preemptible=False),
            Job(gpus=4, max_nodes=1, cpus_per_gpu=4.0),
            Job(gpus=8, min_nodes=2),
            Job(gpus=2, exclusive=True),
            Job(gpus=1, nodes=frozenset({3})),
            Job(gpus=3, memory_mib_per_gpu=400.0),
            Job(gpus=2, memory_mib_per_gpu=400.0),
        ],
        sequence=7,
    )
    address = f"unix:{tmp_path}/policy.sock"
    script = str(ROOT / "examples/over-grpc/server.py")
    with running(sys.executable, script, address, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}):
        async with PolicyClient(address.replace("unix:", "unix://")) as client:
            # When it gets the same requests as from the controller
            await eventually(client.healthy)
            spec = await client.describe()
            decision = await client.decide(state, 5.0)
    # Then it reports its name, and its decisions are valid
    assert spec == PolicySpec(name="first-node", version="1", source="an example")
    plan = make_plan(state, decision, spec)
    assert isinstance(plan, Plan), plan
    assert {start.row: start.placement.nodes for start in plan.starts} == {1: (2,), 6: (0,)}
