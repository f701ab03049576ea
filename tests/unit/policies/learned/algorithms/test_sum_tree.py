"""The sum tree against a plain array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.learned.algorithms.sum_tree import Tree

leaves = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1000)), max_size=30)


@given(size=st.integers(13, 40), changes=st.lists(leaves, max_size=5))
def test_the_root_is_the_sum_of_all_leaves(size: int, changes: list[list[tuple[int, int]]]) -> None:
    sums, least = Tree(size, np.add, 0.0), Tree(size, np.minimum, np.inf)
    plain, plain_least = np.zeros(size), np.full(size, np.inf)
    for change in changes:
        places, values = np.array([c[0] for c in change], dtype=np.int64), np.array([float(c[1]) for c in change])
        for tree, array in ((sums, plain), (least, plain_least)):
            tree[places] = values
            array[places] = values
        assert sums.root == plain.sum()
        assert least.root == plain_least.min()
        assert np.array_equal(sums[np.arange(size)], plain)


@given(
    values=st.lists(st.sampled_from([0.0, 1.0, 2.0, 7.0]), min_size=1, max_size=20).filter(any),
    share=st.floats(0.0, 1.0),
)
def test_the_leaf_at_which_the_sum_exceeds_the_target_is_found(values: list[float], share: float) -> None:
    tree = Tree(len(values), np.add, 0.0)
    tree[np.arange(len(values))] = np.array(values)
    target = share * tree.root
    [found] = tree.find(np.array([target]))
    expected = np.searchsorted(np.cumsum(values), target, side="right")
    # The whole sum is exceeded nowhere: then it is the last leaf that is not 0.
    assert found == min(expected, np.flatnonzero(values)[-1])


def test_no_empty_leaf_is_found_by_rounding() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(1000) < 0.5, rng.random(1000) ** 8, 0.0)
    tree = Tree(1000, np.add, 0.0)
    tree[np.arange(1000)] = values
    targets = np.nextafter(np.cumsum(values), [[-np.inf], [np.inf]]).ravel().clip(0.0)
    found = tree.find(np.concatenate([targets, [tree.root, 2 * tree.root]]))
    assert (values[found] > 0).all()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1024, 1025])
def test_any_size_has_all_its_leaves(size: int) -> None:
    tree = Tree(size, np.add, 0.0)
    tree[np.arange(size)] = np.ones(size)
    assert tree.root == size
    assert np.array_equal(tree.find(np.arange(size) + 0.5), np.arange(size))
