from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.base.errors import SlurmReplyError
from controller.slurm.hostlist import cpu_count, expand_indices, expand_nodes, gpu_mask


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[1,3-4,09-11]", ("n1", "n3", "n4", "n09", "n10", "n11")),
        ("gpu-a[01-02].site,login", ("gpu-a01.site", "gpu-a02.site", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
    ],
)
def test_nodes(text: str, names: tuple[str, ...]) -> None:
    assert expand_nodes(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n1,,n2", "n[3-1]", "n 1", ",", "n]1["])
def test_what_is_no_list_of_nodes(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="not a list of nodes"):
        expand_nodes(text)


@pytest.mark.parametrize("text", ["n[1-9999999]", "n[0-199999,0-199999]", "r[1-1000]n[1-1000]"])
def test_a_list_without_end_is_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError, match=r"not a list of nodes|more than 200000 nodes"):
        expand_nodes(text)


def test_the_order_of_the_text_stays_because_ranks_follow_it() -> None:
    assert expand_nodes("n[3,1-2],a1,n2") == ("n3", "n1", "n2", "a1", "n2")


@pytest.mark.parametrize(("text", "tasks"), [("0", (0,)), ("0,2-3%5", (0, 2, 3)), ("1-9:4", (1, 5, 9)), ("7-7", (7,))])
def test_array_tasks(text: str, tasks: tuple[int, ...]) -> None:
    assert expand_indices(text) == tasks


def test_cpus_are_counted_and_gpus_become_a_mask() -> None:
    assert (cpu_count(""), cpu_count("0-3,8"), cpu_count("65535")) == (0, 5, 1)
    assert (gpu_mask(""), gpu_mask("0-1,3"), gpu_mask("1,1"), gpu_mask("63")) == (0, 0b1011, 0b10, 1 << 63)
    assert gpu_mask("0,64") == gpu_mask("4095") == 0, "masks have 64 bits"


@pytest.mark.parametrize("text", ["0-4000000", "65536", "0-65536", "x"])
def test_numbers_that_no_node_has_are_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="not a list of CPUs of a node"):
        cpu_count(text)
    with pytest.raises(SlurmReplyError, match="not a list of GPUs of a node"):
        gpu_mask(text)


def test_a_list_that_was_cut_off_is_refused() -> None:
    with pytest.raises(SlurmReplyError, match="SLURM_BITSTR_LEN"):
        expand_indices("0-3,5,7,...")


@given(st.sets(st.integers(0, 500), min_size=1))
def test_ranges_are_expanded(numbers: set[int]) -> None:
    assert expand_nodes(f"n[{','.join(map(str, sorted(numbers)))}]") == tuple(f"n{n}" for n in sorted(numbers))


def test_long_lists_are_not_kept_for_ever() -> None:
    # Given an array of many tasks, of which another one starts before each reading
    first = expand_indices("0-99999")
    assert expand_indices("0-99999") is first
    for number in range(1, 40):
        assert len(expand_indices(f"{number}-99999")) == 100_000 - number
    # Then the list of before is not kept for ever: all of them would take gigabytes within an hour
    assert expand_indices("0-99999") is not first
    assert expand_nodes("n[1-3]") is expand_nodes("n[1-3]")
