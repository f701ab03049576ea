from __future__ import annotations

import time

import pytest

from controller.base.errors import SlurmReplyError
from controller.slurm.scontrol import values
from controller.slurm.scontrol.values import Gpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:10:00", 600), ("1-02:03:04", 93784), ("365-00:00:00", 31536000), ("05:00", 300), ("UNLIMITED", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert values.duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "mib"), [("1000M", 1000), ("187.50G", 192000), ("2T", 2097152), ("512K", 1), ("0", None), ("64000", 64000)]
)
def test_sizes(text: str, mib: int | None) -> None:
    assert values.size_mib(text) == mib


def test_counts() -> None:
    assert [values.count(text) for text in ("7", "2K", "1M")] == [7, 2048, 1048576]
    assert [values.span(text) for text in ("3", "1-3", "2-2")] == [(3, 0), (1, 3), (2, 2)]


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("(null)", Gpus(0, "", False, False)),
        ("gpu:8", Gpus(8, "", False, False)),
        ("gpu", Gpus(1, "", False, False)),
        ("gpu:a100:8(S:0-1)", Gpus(8, "a100", False, False)),
        ("gpu:2(S:0,1,3),gpu:3(S:2)", Gpus(5, "", False, True)),
        ("gpu:2(S:0-1),nvme:1(x,y),gpu:1", Gpus(3, "", True, True)),
        ("gpu:2)),gpu:1(", Gpus(3, "", False, True)),
        ("gpu:2,gpu:1),gpu:4", Gpus(6, "", False, True)),
        ("gpu:nvidia_a100-sxm4-80gb:4(S:0,2)", Gpus(4, "nvidia_a100-sxm4-80gb", False, False)),
        ("gpu:1g.5gb:7", Gpus(7, "1g.5gb", False, False)),
        ("gpu:g0:1,gpu:g1:1,gpu:g2:1", Gpus(3, "", False, True)),
        ("gpu:g0:1", Gpus(1, "", False, True)),
        ("gpu:a100:4,gpu:v100:4", Gpus(8, "", False, True)),
        ("gpu:4,nvme:1", Gpus(4, "", True, False)),
        ("gres:gpu:a100:6", Gpus(6, "a100", False, False)),
        ("gres/gpu:2", Gpus(2, "", False, False)),
        ("gres/gpu:a100=4", Gpus(4, "a100", False, False)),
        ("cpu=8,gres/gpu=1", Gpus(1, "", True, False)),
        ("gres/gpumem=4", Gpus(0, "", True, False)),
    ],
)
def test_gpus(text: str, gpus: Gpus) -> None:
    assert values.gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("gres:gpu:g6:1,gres:gpu:g3:2", ((3, 2), (6, 1))),
        ("gres/gpu:g0", ((0, 1),)),
        ("gres:gpu:g4:1,gres:gpu:g1:0", ((4, 1),)),
        ("gres:gpu:2", ()),
        ("gres:gpu:g0:1,gres:gpu:a100:1", ()),
        ("gres:gpu:g0:1,gres:nvme:1", ()),
        ("", ()),
    ],
)
def test_gpus_by_index(text: str, indices: tuple[tuple[int, int], ...]) -> None:
    assert values.gpus_by_index(text) == indices


@pytest.mark.parametrize("read", [values.duration_s, values.size_mib, values.count])
def test_what_is_no_value_is_refused(read: object) -> None:
    with pytest.raises(SlurmReplyError, match="rubbish"):
        read("rubbish")  # type: ignore[operator]


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_that_are_too_large_for_a_float_are_refused(digits: int) -> None:
    for read, text in ((values.duration_s, "9" * digits + ":00"), (values.size_mib, "9" * digits + "M")):
        with pytest.raises(SlurmReplyError, match="999"):
            read(text)


def test_thousands_of_commas_in_a_users_text_take_no_quadratic_time() -> None:
    began_s = time.process_time()
    assert values.gpus("gpu:1" + "," * 40_000 + "gpu:2").count == 3
    assert time.process_time() - began_s < 1.0, "a search for a parenthesis behind each comma takes several seconds"


@pytest.mark.parametrize(
    "text", ["18446744073709551616", "9007199254740993", "9007199254740992K", "-9" * 9, "many", ""]
)
def test_numbers_that_no_cluster_has_are_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        values.count(text)
    with pytest.raises(SlurmReplyError):
        values.whole(text)


def test_sizes_that_no_cluster_has_are_refused() -> None:
    assert values.whole("9007199254740992") == 1 << 53
    with pytest.raises(SlurmReplyError, match="no cluster has"):
        values.size_mib("18446744073709551616")
