"""Garbage waits for the end of a cycle, and no longer."""

import gc
import weakref

from policies.serving.runtime.gc_pauses import paused_collector


class Knot:
    """Only the collector frees it: it refers to itself."""

    def __init__(self):
        self.itself = self


def test_garbage_is_collected_between_cycles_and_only_there():
    with paused_collector() as collector:
        left = weakref.ref(Knot())
        several = [Knot() for _ in range(5000)]  # enough for automatic collection to begin
        assert left() is not None
        collector.collect()
        assert left() is None
        assert len(several) == 5000


def test_objects_that_outlive_many_cycles_are_freed_in_the_end():
    with paused_collector() as collector:
        collector.collect()
        old = Knot()
        gone = weakref.ref(old)
        collector.collect()
        collector.collect()
        del old
        for _ in range(100):
            collector.collect()
        assert gone() is None


def test_automatic_collection_comes_back():
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
