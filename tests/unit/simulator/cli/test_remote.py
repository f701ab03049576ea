"""Policies of servers in the simulator: real servers, real gRPC."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
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
