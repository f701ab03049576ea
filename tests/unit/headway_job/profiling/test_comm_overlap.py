"""Profiles of recordings, with results that were computed by hand. Times are in milliseconds."""

from __future__ import annotations

import pytest
from headway_job.profiling.comm_overlap import (
    Collective,
    Recording,
    StepEnd,
    kind_on_cpu,
    kind_on_gpu,
    split,
)
from headway_job.profiling.interruptions import few_remain

_MS = 1_000_000


def _ends(*rows: tuple[float, float, float]) -> list[StepEnd]:
    return [StepEnd(*(round(value * _MS) for value in row)) for row in rows]


def _all_reduce(begin: float, end: float, size: int = 1000) -> Collective:
    return Collective("all_reduce", round(begin * _MS), round(end * _MS), size)


def _recording(
    step_ends: list[StepEnd],
    collectives: list[Collective] | None = None,
    on_gpu: list[Collective] | None = None,
    kernels: list[tuple[float, float]] | None = None,
    data_waits: list[tuple[float, float]] | None = None,
) -> Recording:
    def spans(rows: list[tuple[float, float]] | None) -> list[tuple[int, int]]:
        return [(round(begin * _MS), round(end * _MS)) for begin, end in rows or []]

    return Recording(step_ends, collectives or [], on_gpu or [], spans(kernels), spans(data_waits))


def test_on_a_cpu_the_training_sleeps_for_what_is_exposed() -> None:
    # a step of 10 ms: 6 ms of CPU, 1 ms in the queue, so 3 ms asleep; communication from 4 to 9
    found = split(_recording(_ends((0, 0, 0), (10, 6, 1)), [_all_reduce(4, 7), _all_reduce(6, 9)]))
    assert found["step_s"] == pytest.approx(0.010)
    assert found["comm_exposed_s"] == pytest.approx(0.003)
    assert found["comm_hidden_s"] == pytest.approx(0.002)
    assert found["compute_s"] == pytest.approx(0.007)
    assert found["kinds"] == {"all_reduce": {"count": 2.0, "bytes": 2000.0, "seconds": pytest.approx(0.005)}}


def test_no_more_is_exposed_than_was_in_progress() -> None:
    # 8 ms asleep in a step of 10, but only 2 ms of communication: the rest has other reasons
    found = split(_recording(_ends((0, 0, 0), (10, 2, 0)), [_all_reduce(4, 6)]))
    assert found["comm_exposed_s"] == pytest.approx(0.002)
    assert found["comm_hidden_s"] == 0
    assert found["compute_s"] == pytest.approx(0.008)


def test_sleep_for_data_is_not_communication() -> None:
    # 6 ms asleep, 4 of them for data, 1 of which while a collective was in progress
    found = split(_recording(_ends((0, 0, 0), (10, 4, 0)), [_all_reduce(3, 9)], data_waits=[(0, 4)]))
    assert found["comm_exposed_s"] == pytest.approx(0.002)
    assert found["comm_hidden_s"] == pytest.approx(0.004)


def test_every_step_for_itself() -> None:
    # the first sleeps without communication, the second communicates without sleep
    found = split(_recording(_ends((0, 0, 0), (10, 5, 0), (20, 15, 0)), [_all_reduce(12, 17)]))
    assert found["steps"] == 2
    assert found["comm_exposed_s"] == 0
    assert found["comm_hidden_s"] == pytest.approx(0.0025)
    assert found["kinds"]["all_reduce"]["count"] == 0.5


def test_a_step_without_communication_is_compute() -> None:
    found = split(_recording(_ends((0, 0, 0), (10, 1, 0))))
    assert (found["compute_s"], found["comm_exposed_s"], found["kinds"]) == (pytest.approx(0.010), 0, {})
    assert "busy_s" not in found  # not known on a CPU


def test_on_a_gpu_streams_overlap() -> None:
    # kernels from 0 to 6 and 8 to 9, a collective from 4 to 8: 2 ms beside the first kernel, 2 ms alone
    found = split(
        _recording(
            _ends((0, 0, 0), (10, 1, 0)),
            collectives=[Collective("all_reduce", 3 * _MS, 3 * _MS + 1, 4096)],
            on_gpu=[Collective("all_reduce", 4 * _MS, 8 * _MS, 0)],
            kernels=[(0, 5), (3, 6), (8, 9)],
        )
    )
    assert found["comm_exposed_s"] == pytest.approx(0.002)
    assert found["comm_hidden_s"] == pytest.approx(0.002)
    assert found["compute_s"] == pytest.approx(0.008)
    assert found["busy_s"] == pytest.approx(0.007)
    assert found["kinds"] == {"all_reduce": {"count": 1.0, "bytes": 4096.0, "seconds": pytest.approx(0.004)}}


def test_events_are_cut_at_the_edges_of_the_window() -> None:
    found = split(_recording(_ends((10, 0, 0), (20, 10, 0)), on_gpu=[Collective("broadcast", 5 * _MS, 12 * _MS, 0)]))
    assert found["comm_exposed_s"] == pytest.approx(0.002)


@pytest.mark.parametrize(
    "step_ends", [_ends(), _ends((1, 0, 0)), _ends((5, 0, 0), (5, 1, 0)), _ends((5, 0, 0), (4, 1, 0))]
)
def test_a_useless_recording(step_ends: list[StepEnd]) -> None:
    with pytest.raises(ValueError, match="no steps"):
        split(_recording(step_ends))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("nccl:allreduce_coalesced", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("gloo:broadcast", "broadcast"),
        ("nccl:all_to_all", "all_to_all"),
        ("nccl:send 0->1", "send_recv"),
        ("gloo:recv", "send_recv"),
        ("gloo:reduce", "other"),
        ("gloo:barrier", "other"),
        ("Optimizer.step#SGD.step", ""),
        ("aten::add", ""),
    ],
)
def test_kinds_on_the_cpu(name: str, kind: str) -> None:
    assert kind_on_cpu(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ("void at::native::vectorized_elementwise_kernel<4>", ""),
        ("Memcpy HtoD (Pinned -> Device)", ""),
    ],
)
def test_kinds_on_the_gpu(name: str, kind: str) -> None:
    assert kind_on_gpu(name) == kind


def _local(begin: float, end: float, size: int = 1000) -> Collective:
    return _all_reduce(begin, end, size)._replace(link_share=0.0)


def test_communication_within_the_node_is_reported_apart() -> None:
    # 4 ms asleep in a step of 10 ms; a group within the node from 2 to 8, one between nodes from 6 to 10, counted twice over
    between = _all_reduce(6, 10, 100)._replace(link_share=2.0)
    recording = _recording(_ends((0, 0, 0), (10, 6, 0)), [_local(2, 8), between])._replace(divides=True)
    found = split(recording)
    assert (found["comm_exposed_s"], found["comm_hidden_s"]) == (pytest.approx(0.004), pytest.approx(0.004))
    # half of the 8 ms are of the group within the node alone
    assert (found["local_exposed_s"], found["local_hidden_s"]) == (pytest.approx(0.002), pytest.approx(0.002))
    assert (found["kinds"]["all_reduce"]["bytes"], found["kinds"]["all_reduce"]["link_bytes"]) == (1100.0, 200.0)


def test_where_nothing_is_known_of_nodes_nothing_is_reported_apart() -> None:
    found = split(_recording(_ends((0, 0, 0), (10, 6, 0)), [_local(2, 8)]))
    assert not {"local_exposed_s", "local_hidden_s"} & found.keys()
    assert "link_bytes" not in found["kinds"]["all_reduce"]


def test_on_a_gpu_kernels_have_the_groups_of_their_calls() -> None:
    # kernels from 0 to 4; first a group within the node from 2 to 6, then one between nodes from 6 to 9
    calls = [_local(0, 0.1), _all_reduce(0.2, 0.3)]
    on_gpu = [_all_reduce(6, 9), _all_reduce(2, 6)]
    ends, kernels = _ends((0, 0, 0), (10, 1, 0)), [(0.0, 4.0)]
    found = split(_recording(ends, calls, on_gpu, kernels)._replace(divides=True))
    assert (found["comm_exposed_s"], found["comm_hidden_s"]) == (pytest.approx(0.005), pytest.approx(0.002))
    assert (found["local_exposed_s"], found["local_hidden_s"]) == (pytest.approx(0.002), pytest.approx(0.002))
    # of which call a kernel is, is not known if there are more of one of them: then none is within the node, unless all calls are
    found = split(_recording(ends, calls[:1] + calls, on_gpu, kernels)._replace(divides=True))
    assert (found["local_exposed_s"], found["local_hidden_s"]) == (0, 0)
    found = split(_recording(ends, [_local(0, 0.1)] * 3, on_gpu, kernels)._replace(divides=True))
    assert (found["local_exposed_s"], found["local_hidden_s"]) == (pytest.approx(0.005), pytest.approx(0.002))


def _with_evaluations(*places: int, gap_ms: float = 4000) -> Recording:
    """Return 20 steps of 100 ms, 60 of them computing and 40 in an all-reduce; those in `places` contain an evaluation besides."""
    now = cpu = 0.0
    rows, collectives, waits = [(now, cpu, 0.0)], [], []
    for place in range(20):
        gap = gap_ms if place in places else 0.0
        collectives += [_all_reduce(now + 60, now + 100)]
        if gap:  # of 20 batches, for which it waits, too; the ranks sum up its results
            collectives.append(_all_reduce(now + 100, now + 110))
            waits += [(now + 200 + number, now + 200.5 + number) for number in range(20)]
        now, cpu = now + 100 + gap, cpu + 60 + gap
        rows.append((now, cpu, 0.0))
    return _recording(_ends(*rows), collectives, data_waits=waits)


@pytest.mark.parametrize("places", [(0,), (7,), (19,), (3, 14)])
def test_steps_with_an_evaluation_are_left_out(places: tuple[int, ...]) -> None:
    found, usual = split(_with_evaluations(*places)), split(_with_evaluations())
    assert found.pop("steps") == usual.pop("steps") - len(places)
    kinds, usual_kinds = found.pop("kinds"), usual.pop("kinds")
    assert found == pytest.approx(usual)
    assert kinds["all_reduce"] == pytest.approx(usual_kinds["all_reduce"])


def test_long_steps_that_are_frequent_count() -> None:
    found = split(_with_evaluations(3, 8, 13, 18))
    assert found["steps"] == 20
    assert found["step_s"] == pytest.approx(0.1 + 4 * 4 / 20)


def test_a_step_that_waits_long_for_its_batch_counts() -> None:
    """Every sixteenth step waits for the workers of the DataLoader: that is the job's own speed."""
    ends = [(0.0, 0.0, 0.0)]
    waits = []
    for place in range(32):
        wait = 900.0 if place % 16 == 15 else 1.0
        now, cpu, _ = ends[-1]
        waits.append((now, now + wait))
        ends.append((now + wait + 50, cpu + 50, 0.0))
    recording = _recording(_ends(*ends), data_waits=waits)
    assert split(recording)["steps"] == 32
    without_events = recording._replace(data_waits=[], has_events=False)
    assert split(without_events)["steps"] == 32


def test_an_evaluation_is_left_out_without_events() -> None:
    recording = _with_evaluations(7)._replace(collectives=[], data_waits=[], has_events=False)
    assert split(recording)["steps"] == 19


def test_on_a_gpu_kernels_of_an_evaluation_are_left_out() -> None:
    ends = _ends(*((now, now, 0) for now in (0, 10, 20, 90, 100, 110)))
    kernels = [(0.0, 6.0), (10.0, 16.0), (20.0, 86.0), (90.0, 96.0), (100.0, 106.0)]
    on_gpu = [_all_reduce(begin, begin + 2) for begin in (6, 16, 86, 96, 106)]
    found = split(_recording(ends, on_gpu, on_gpu, kernels))
    assert found["steps"] == 4
    assert found["step_s"] == pytest.approx(0.010)
    assert found["busy_s"] == pytest.approx(0.006)
    assert found["comm_exposed_s"] == pytest.approx(0.002)
    assert found["kinds"]["all_reduce"]["count"] == 1.0


@pytest.mark.parametrize(
    ("seconds", "usual_s", "few"),
    [
        ([120.0], 0.5, True),
        ([70.0], 68.0, False),
        ([0.5, 0.5, 120.0], 0.5, True),
        ([0.5, 0.5, 0.5, 0.5, 120.0], 0.5, False),
        ([20.0, 22.0, 21.0], 20.0, False),
        ([0.1] * 20, 3.0, False),
    ],
)
def test_windows_with_too_few_steps_beside_an_evaluation(seconds: list[float], usual_s: float, few: bool) -> None:
    assert few_remain(seconds, 20, usual_s) == few
