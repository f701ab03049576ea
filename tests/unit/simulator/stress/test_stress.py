"""`headway-sim stress`: workloads of many shapes, and learned policies that do not collapse on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np
import pytest

from simulator.cli import main as cli
from simulator.cluster.cluster import parse_cluster
from simulator.stress.shapes import SHAPES, trace_of
from simulator.traces.load import offered_load

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headway-sim", "stress", "--processes", "1", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


@pytest.mark.parametrize("name", SHAPES)
def test_a_workload_has_its_load_and_fits(name: str) -> None:
    shape = SHAPES[name]
    cluster = parse_cluster(shape.cluster or "3x8")
    trace, again = (trace_of(name, shape, cluster, 60, 1) for _ in range(2))

    assert len(trace) == 60
    assert int(trace.num_gpus.max()) <= cluster.num_gpus
    assert np.array_equal(trace.duration_ns, again.duration_ns)
    assert bool((trace.min_gpus < trace.max_gpus).any()) == shape.elastic
    if shape.burst == 1:
        assert offered_load(trace, cluster.num_gpus).load == pytest.approx(shape.load, rel=0.01)
    assert len(set(trace.submit_ns.tolist())) == (-(-60 // shape.burst) if shape.burst else 1)


def test_ratios_are_to_the_first_policy(stress: Call) -> None:
    code, out, _ = stress(
        "--policies", "fifo-skip,sjf,fifo", "--shapes", "tiny,at-once", "--jobs", 40, "--most", 9, "--json"
    )
    found = json.loads(out)

    assert code == 0
    assert [(each["shape"], each["policy"]) for each in found["outcomes"]] == [
        (shape, policy) for shape in ("tiny", "at-once") for policy in ("fifo-skip", "sjf", "fifo")
    ]
    ratios = {each["policy"]: each["ratio"] for each in found["outcomes"] if each["shape"] == "at-once"}
    assert ratios["fifo-skip"] == 1.0 and ratios["sjf"] < 1.0 <= ratios["fifo"]


def test_one_that_is_above_the_limit_is_named(stress: Call) -> None:
    code, out, _ = stress("--policies", "sjf,fifo", "--shapes", "at-once", "--jobs", 40)

    assert code == 1
    assert "fifo on at-once: " in out


def test_shapes_are_listed_and_unknown_ones_refused(stress: Call) -> None:
    assert "heavy tails" in stress("--policies", "fifo", "--shapes", "list")[1]
    code, _, err = stress("--policies", "fifo", "--shapes", "round")
    assert code == 2 and "'round': give some of usual," in err


def test_a_cluster_that_a_policy_does_not_support_is_said(stress: Call) -> None:
    pytest.importorskip("safetensors")
    code, out, _ = stress("--policies", "fifo-skip,sched2-rule", "--shapes", "tiny", "--jobs", 20, "--markdown")

    assert code == 0
    assert out.splitlines()[0] == "| shape | fifo-skip, h | sched2-rule |"
    assert "refuses it" in out.splitlines()[2]


@pytest.mark.parametrize("shape", ["days", "idle-days"])
def test_the_guard_keeps_a_learned_policy_near_the_rule(stress: Call, shape: str) -> None:
    """Alone it leaves jobs waiting that are longer than those of its training, on a cluster that is nearly idle."""
    pytest.importorskip("safetensors")
    policies = "fifo-skip,sched2-rule:guard=false,sched2-rule"
    code, out, _ = stress("--policies", policies, "--shapes", shape, "--cluster", "15x8", "--jobs", 60, "--json")
    _, alone, guarded = json.loads(out)["outcomes"]

    assert code == 1
    assert alone["ratio"] > 1.5
    assert guarded["ratio"] < 1.1
    assert 0 < guarded["guarded_share"] < 0.5
