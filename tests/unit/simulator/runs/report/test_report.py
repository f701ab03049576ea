"""The page of a comparison: its data, and that it stands alone."""

from __future__ import annotations

import base64
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from simulator.cluster.cluster import parse_cluster
from simulator.results.metrics import summary
from simulator.results.result import Result
from simulator.runs.options import RunOptions
from simulator.runs.report import lanes, steps
from simulator.runs.report.contention import heat
from simulator.runs.report.data import of_run, of_trace
from simulator.runs.report.page import page, table, write_page
from simulator.runs.scenario import Scenario
from simulator.traces.trace import NS_PER_S
from tests.unit.simulator.commands import run, trace_of, write
from tests.unit.simulator.results.test_metrics import Half

THREE = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]


def numbers(text: object, kind: str) -> list[float]:
    assert isinstance(text, str)
    return np.frombuffer(base64.b64decode(text), dtype=np.dtype(kind)).tolist()


def drawn(result: Result, rows: list[tuple[float, int, float]], cluster: str = "1x4") -> dict[str, object]:
    return of_run(result, summary(result), trace_of(rows), [], parse_cluster(cluster).topology)


# --- steps


def test_means_of_steps() -> None:
    times, levels = np.array([10, 20, 40]), np.array([2, 4, 0])

    assert steps.means(times, levels, np.array([0, 10, 30, 50])).tolist() == [0, 3, 2]
    assert steps.means(times, levels, np.array([15, 25])).tolist() == [3]
    assert steps.means(np.array([]), np.array([]), np.array([0, 5])).tolist() == [0]


def test_busy_over_time_is_utilization() -> None:
    result = run(THREE)
    assert result.spans is not None

    mean = steps.means(*result.spans.busy(), np.array([0, 30 * NS_PER_S]))

    assert mean[0] / 4 == pytest.approx(summary(result)["utilization"])


# --- lanes


def test_no_two_runs_share_a_lane() -> None:
    random = np.random.default_rng(2)
    rows = [(float(at), int(random.integers(1, 9)), float(random.integers(1, 30))) for at in range(300)]
    result = run(rows, "2x4", "srtf")
    assert result.spans is not None
    bars = lanes.bars(result.spans, result.node_gpus, 10**6)

    taken: dict[int, list[tuple[int, int]]] = {}
    for at in range(len(bars)):
        for lane in range(int(bars.lane[at]), int(bars.lane[at] + bars.gpus[at])):
            taken.setdefault(lane, []).append((int(bars.start[at]), int(bars.end[at])))
    assert set(taken) <= set(range(8))
    for occupied in taken.values():
        occupied.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(occupied))
    drawn_time = ((bars.end - bars.start) * bars.gpus).sum()
    assert drawn_time == result.attained_gpu_ns.sum()


def test_of_too_many_runs_the_longest_are_drawn() -> None:
    result = run([(float(at), 1, 1.0 + at) for at in range(10)])
    assert result.spans is not None

    assert sorted(lanes.bars(result.spans, result.node_gpus, 3).job.tolist()) == [7, 8, 9]


# --- contention


def test_heat_is_the_slowdown_while_two_share_a_node() -> None:
    # a and b share from 0 to 10 at half speed; then a is alone.
    rows = [(0.0, 2, 20.0), (0.0, 2, 5.0)]
    result = run(rows, slowdown=[Half()], models=["a", "b"])

    found = heat(result, trace_of(rows, ["a", "b"]), [Half()], parse_cluster("1x4").topology)

    assert found is not None
    assert found.models == ("a", "b")
    assert found.slowdown == ((None, 2.0), (2.0, None))
    assert found.alone == (1.0, None)
    assert found.hours[0][1] == pytest.approx(10 / 3600)


def test_jobs_on_other_nodes_are_not_near() -> None:
    rows = [(0.0, 4, 20.0), (0.0, 4, 5.0), (0.0, 2, 5.0), (0.0, 2, 5.0)]
    names = ["a", "b", "c", "c"]
    result = run(rows, "3x4", models=names)

    found = heat(result, trace_of(rows, names), [], parse_cluster("3x4").topology)

    assert found is not None
    assert found.slowdown == ((None, None, None), (None, None, None), (None, None, 1.0))


def test_jobs_that_share_a_link_are_near() -> None:
    # Both span the two nodes: 6 of 8 GPUs here, 6 there.
    rows = [(0.0, 6, 20.0), (0.0, 2, 20.0)]
    names = ["a", "b"]
    result = run(rows, "2x4", models=names)

    found = heat(result, trace_of(rows, names), [], parse_cluster("2x4").topology)

    assert found is not None
    assert found.slowdown[0][1] == 1.0


def test_a_trace_without_models_has_no_heat() -> None:
    assert heat(run(THREE), trace_of(THREE), [], parse_cluster("1x4").topology) is None


def test_contention_that_depends_on_single_gpus_is_not_drawn_but_explained() -> None:
    class OfGpus(Half):
        needs_gpus = True

    rows, names = [(0.0, 2, 20.0), (0.0, 2, 5.0)], ["a", "b"]
    result = run(rows, slowdown=[OfGpus()], models=names)
    topology = parse_cluster("1x4").topology

    data = of_run(result, summary(result), trace_of(rows, names), [OfGpus()], topology)

    assert data["heat"] is None
    assert "which GPUs of a node a job has" in str(data["no_heat"])
    assert of_run(result, summary(result), trace_of(rows, names), [Half()], topology)["no_heat"] == ""
    assert drawn(run(THREE), THREE)["no_heat"] == "The trace does not name models."


def test_restarts_and_moves_are_followed() -> None:
    random = np.random.default_rng(4)
    rows = [(float(at), int(random.integers(1, 6)), float(random.integers(1, 40))) for at in range(150)]
    names = [f"m{at % 3}" for at in range(150)]
    result = run(rows, "2x4", "srtf", models=names)

    found = heat(result, trace_of(rows, names), [Half()], parse_cluster("2x4").topology)

    assert found is not None
    assert found.runs > 150
    assert all(value is None or 1 <= value <= 2 for row in found.slowdown for value in row)


# --- the page


def test_the_gantt_chart_shows_which_job_ran_when() -> None:
    gantt = drawn(run(THREE), THREE)["gantt"]
    assert isinstance(gantt, dict)

    span = 2**32 - 1
    rows = zip(
        *(numbers(gantt[name], kind) for name, kind in (("job", "<u4"), ("lane", "<u4"), ("gpus", "<u2"))), strict=True
    )
    assert sorted(rows) == [(0, 0, 4), (1, 2, 2), (2, 0, 2)]
    assert sorted(numbers(gantt["end"], "<u4")) == [round(span / 3), round(span / 2), span]


def test_series_have_the_runs_means() -> None:
    result = run(THREE)
    data = drawn(result, THREE)

    assert np.mean(data["utilization"]) == pytest.approx(summary(result)["utilization"], abs=1e-5)
    assert np.mean(data["fragmentation"]) == pytest.approx(summary(result)["fragmentation"], abs=1e-5)
    assert np.mean(data["queue"]) == pytest.approx((8 + 6) / 30, abs=1e-5)
    jct = data["jct"]
    assert isinstance(jct, list)
    assert (jct[0], jct[-1]) == (10, 28)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in {"src", "href", "action"}]
        self.open.append(tag)


def test_the_page_stands_alone(tmp_path: Path) -> None:
    options = RunOptions(write(tmp_path / "small.csv", THREE), "1x4")
    scenario = Scenario.of(options, record=True)
    path = tmp_path / "report.html"
    write_page(path, scenario, [drawn(run(THREE), THREE)], "headway-sim compare …")
    text = path.read_text()

    tags = _Tags()
    tags.feed(text)
    assert tags.addresses == []
    assert not re.search(r"""(url\(|@import|fetch\(|XMLHttpRequest|import\(|https?://(?!www\.w3\.org))""", text)
    assert "Headway" in text
    assert "headway-sim compare …" in text or "headway-sim compare \\u2026" in text


def test_names_from_a_trace_cannot_end_the_data() -> None:
    evil = "</script><script>alert(1)</script><!--"
    text = page("t", {"trace": evil})

    inside = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == {"trace": evil}
    assert "<!--" not in inside[1]


def test_jobs_in_the_page() -> None:
    trace = trace_of(THREE, ["b", "a", "b"])
    data = of_trace(trace, ("n0",), (4,))

    assert data["models"] == ["a", "b"]
    assert numbers(data["model"], "<u4") == [1, 0, 1]
    assert numbers(data["submit"], "<f8") == [0, 2, 4]


def test_the_table_marks_the_best() -> None:
    rows = table([{"figures": {"avg_jct_s": 5.0, "jobs": 2}}, {"figures": {"avg_jct_s": 3.0, "jobs": 2}}])

    assert {row["key"]: row["best"] for row in rows} == {"jobs": [], "avg_jct_s": [1]}
