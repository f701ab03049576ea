"""Policies of servers in the simulator: real servers, real gRPC."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policies.serving.remote import RemotePolicy
from simulator.cli import main as cli
from tests.unit.policies.processes import running, serve_command, until_accepted
from tests.unit.simulator.commands import write

ROWS = [(3.0 * number, 1 + number % 4, 10.0 + 7 * (number % 5)) for number in range(40)]
TIMES = ("wall_s", "jobs_per_s", "decision_p50_ms", "decision_p99_ms")
Sim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Sim:
    trace = write(tmp_path / "small.csv", ROWS)

    def call(command: str, *words: object) -> tuple[int, str, str]:
        given = ["headway-sim", command, "--trace", trace, "--cluster", "2x4", *words]
        monkeypatch.setattr(sys, "argv", list(map(str, given)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/policy.sock"


@pytest.fixture
def server(address: str) -> Iterator[None]:
    """A server of srtf."""
    with running(*serve_command("srtf", address)):
        until_accepted(address)
        yield


def test_it_decides_as_the_same_policy_in_the_process(sim: Sim, server: None, address: str, tmp_path: Path) -> None:
    # A program of its own: it forks, and gRPC does not work in a process that was forked from one which has used it.
    options = [
        "--trace",
        str(tmp_path / "small.csv"),
        "--cluster",
        "2x4",
        "--policies",
        f"{address},srtf,fifo",
        "--json",
    ]
    program = "from simulator.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "compare", *options], capture_output=True, text=True, timeout=100, check=True
    )

    found = {
        name: {key: value for key, value in each.items() if key not in TIMES}
        for name, each in json.loads(done.stdout).items()
    }
    assert found[address] == found["srtf"] != found["fifo"]


def test_the_files_of_a_run_name_the_server(sim: Sim, server: None, address: str, tmp_path: Path) -> None:
    assert sim("run", "--policy", address, "--out", tmp_path / "out")[0] == 0

    assumptions = json.loads((tmp_path / "out/summary.json").read_text())["assumptions"]
    assert (assumptions["policy"], assumptions["fallback_decisions"]) == (address, 0)
    assert assumptions["policy_source"].startswith("Shortest remaining processing time")


def test_decisions_over_grpc_can_be_timed(sim: Sim, server: None, address: str) -> None:
    code, out, _ = sim("latency", "--policies", f"{address},srtf", "--json")

    assert code == 0
    assert set(json.loads(out)) == {address, "srtf"}


@contextmanager
def serving(decide: str, address: str, folder: Path) -> Iterator[None]:
    """Serve a policy `own` whose `decide` has that body, from a package in the folder."""
    (folder / "own_rule.py").write_text(
        "import time\n"
        "from policies.api import Decision, PolicySpec\n"
        "from policies.model import Placement\n"
        "from policies.selection import fill\n"
        "class Own:\n"
        "    spec = PolicySpec(name='own', source='a test', preempts=True)\n"
        f"    def decide(self, state): {decide}\n"
    )
    info = folder / "own_rule-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-rule\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[headway.policies]\nown = own_rule:Own\n")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with running(*serve_command("own", address), env={"PYTHONPATH": path}):
        until_accepted(address)
        yield


@pytest.fixture
def late(address: str, tmp_path: Path) -> Iterator[str]:
    """A policy whose server never answers in time."""
    with serving("time.sleep(600)", address, tmp_path):
        yield f"{address}?deadline_s=0.02&fallback=srtf"


@pytest.fixture
def wrong(address: str, tmp_path: Path) -> Iterator[str]:
    """A policy that gives all waiting jobs the same GPUs, wherever several wait."""
    same = "Decision({int(row): Placement((0,), (int(state.jobs.num_gpus[row]),)) for row in state.pending})"
    with serving(f"return {same} if len(state.pending) > 1 else fill(state, state.pending)", address, tmp_path):
        yield address


def test_the_fallback_decides_where_the_decision_of_a_server_is_impossible(sim: Sim, wrong: str) -> None:
    code, out, err = sim("run", "--policy", f"{wrong}?fallback=fifo-skip", "--json")

    assert code == 0
    found = json.loads(out)
    assert 0 < found["fallback_decisions"] < found["decisions"]
    assert err.count("decisions were the fallback's; the first: decision ") == 1
    assert " of own, at " in err


def test_times_of_decisions_go_on_after_an_impossible_one(sim: Sim, wrong: str) -> None:
    code, out, _ = sim("latency", "--policies", f"{wrong}?fallback=fifo-skip", "--json")

    assert code == 0
    (found,) = json.loads(out).values()
    assert 0 < found["fallback_decisions"] < found["decisions"]


def test_without_a_fallback_an_impossible_decision_ends_the_run(sim: Sim, wrong: str) -> None:
    code, out, err = sim("run", "--policy", wrong, "--json")

    assert (code, out) == (2, "")
    assert re.search(r"decision \d+ of own, at \d+ s, cannot be carried out: it .* job j\d+", err)


def test_the_json_of_a_run_says_that_the_fallback_decided(sim: Sim, late: str) -> None:
    code, out, err = sim("run", "--policy", late, "--json")

    assert code == 0
    found = json.loads(out)
    assert found["fallback_decisions"] == found["decisions"] > 0
    assert list(found)[-1] == "fallback_decisions"
    assert f"{late}: {found['decisions']} of {found['decisions']} decisions were the fallback's; the first: " in err


def test_the_json_of_a_comparison_says_that_the_fallback_decided(sim: Sim, late: str, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text("[sweep]\nseed = [0]\n")
    given = ["--trace", str(tmp_path / "small.csv"), "--cluster", "2x4", "--policies", f"{late},srtf"]
    program = "from simulator.cli.main import main; main()"
    command = [sys.executable, "-c", program, "compare", *given, "--json"]
    compared, swept = (
        subprocess.run([*command, *more], capture_output=True, text=True, timeout=100, check=True)
        for more in ([], ["--config", str(sweep)])
    )

    figures = list(json.loads(compared.stdout).values())
    rows = [run["figures"] for run in json.loads(swept.stdout)]
    for with_fallback, without in (figures, rows):
        assert with_fallback["fallback_decisions"] == with_fallback["decisions"] > 0
        assert "fallback_decisions" not in without
    for err in (compared.stderr, swept.stderr):
        assert err.count("decisions were the fallback's") == 1


def test_times_of_decisions_say_that_the_fallback_decided(sim: Sim, late: str) -> None:
    code, out, err = sim("latency", "--policies", f"{late},srtf", "--decisions", 4, "--json")

    assert code == 0
    found = json.loads(out)
    assert found[late]["fallback_decisions"] == found[late]["decisions"] == 4
    assert not {"fallback_decisions", "note"} & found["srtf"].keys()
    assert "4 of 4 decisions were the fallback's" in err
    assert "4 of 4 decisions were the fallback's" in sim("latency", "--policies", late, "--decisions", 4)[1]


def test_without_a_server_it_ends_with_an_error(sim: Sim, address: str) -> None:
    code, out, err = sim("run", "--policy", address, "--json")

    assert (code, out) == (2, "")
    assert err.startswith(f"headway-sim run: policy server {address}: unreachable")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("127.0.0.1:50061", "is not the address of a policy server; give grpc://HOST:PORT"),
        ("http://127.0.0.1:50061", "is not the address of a policy server; give grpc://HOST:PORT"),
        ("grpc://10.1.2.3:50061", "is not on this machine"),
        ("grpc://127.0.0.1", "is not an address"),
        ("grpc://127.0.0.1:50061?deadline_s=-1", "deadline_s is -1.0"),
        ("grpc://127.0.0.1:50061?deadline_s=soon", "deadline_s is 'soon'"),
        ("grpc://127.0.0.1:50061?patience=3", "unknown option 'patience'"),
        ("grpc://127.0.0.1:50061?deadline_s", "give grpc://HOST:PORT"),
        ("grpc://127.0.0.1:50061?fallback=none-such", "no policy is named 'none-such'"),
    ],
)
def test_wrong_addresses_are_reported(sim: Sim, policy: str, said: str) -> None:
    code, out, err = sim("run", "--policy", policy)

    assert (code, out) == (2, "")
    assert said in err


def test_a_comparison_closes_the_policies_that_it_has_checked(
    sim: Sim, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[RemotePolicy] = []
    monkeypatch.setattr(RemotePolicy, "close", lambda policy: closed.append(policy))

    code, _, err = sim("compare", "--policies", f"{address},{address}2", "--placement", "any")

    assert (code, len(closed)) == (2, 2)
    assert "none of the policies takes --placement" in err


def test_options_of_the_run_do_not_reach_a_server(sim: Sim, address: str) -> None:
    code, _, err = sim("run", "--policy", address, "--placement", "any")

    assert code == 2
    assert "has its options already; leave --placement out" in err
