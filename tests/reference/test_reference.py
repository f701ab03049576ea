"""Hand-computed scenarios for the reference simulator, so that it can be trusted: placement, and policies that stop no job.

Times in seconds; "1x4" = 1 node, 4 GPUs. In comments, "A 0-10" is "A runs from 0 to 10", "A 10 left" its remaining work.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.reference import Job, simulate
from tests.reference.scenario import Row, job, play


class TestPlacement:
    def test_best_fit_is_the_fitting_node_with_fewest_free_gpus_lowest_index_on_ties(self) -> None:
        # Free after each: A (2,4,4), B needs 3: (2,1,4), C: node 1 has 1 free: (2,0,4), D: (0,0,4), E: (0,0,3).
        replay = play("3x4", "fifo", A=(0, 2, 9), B=(0, 3, 9), C=(0, 1, 9), D=(0, 2, 9), E=(0, 1, 9))
        assert replay.nodes == {"A": {0: 2}, "B": {1: 3}, "C": {1: 1}, "D": {0: 2}, "E": {2: 1}}

    def test_a_job_of_one_whole_node_takes_the_empty_node_with_the_lowest_index(self) -> None:
        assert play("3x4", "fifo", A=(0, 1, 9), B=(0, 4, 9)).nodes == {"A": {0: 1}, "B": {1: 4}}

    def test_a_gang_takes_whole_empty_nodes_and_its_remainder_the_best_fit_among_the_others(self) -> None:
        # 9 = 2 x 4 + 1: nodes 1 and 2 whole; the remainder goes to node 0 (2 free) and not to empty node 3.
        replay = play("4x4", "fifo", A=(0, 2, 9), B=(0, 9, 5))
        assert replay.nodes["B"] == {1: 4, 2: 4, 0: 1}
        assert replay.spans["B"] == (0, 5)

    def test_the_remainder_never_shares_a_node_with_the_whole_parts(self) -> None:
        # 6 = 4 + 2: node 0 whole, and node 1 is the best fit of the two empty nodes left.
        assert play("3x4", "fifo", A=(0, 6, 9)).nodes == {"A": {0: 4, 1: 2}}

    def test_a_gang_waits_for_whole_empty_nodes_although_enough_gpus_are_free(self) -> None:
        # A 0-10 on node 0, B 0-6 on node 1 (4 GPUs). C: 5 = 4 + 1. Free at 1: 3; at 6: node 1 empty, node 0 has 3.
        # D needs both nodes: at 10 C still runs (6-16), so D 16-17.
        replay = play("2x4", "fifo", A=(0, 1, 10), B=(0, 4, 6), C=(1, 5, 10), D=(2, 8, 1))
        assert replay.spans == {"A": (0, 10), "B": (0, 6), "C": (6, 16), "D": (16, 17)}
        assert replay.nodes["C"] == {1: 4, 0: 1}

    def test_half_empty_nodes_do_not_make_a_whole_one(self) -> None:
        # 2x2. A, B fill node 0; C on node 1. B ends at 3: one GPU free on each node. D (2 GPUs) waits for C at 8.
        replay = play("2x2", "fifo", A=(0, 1, 20), B=(0, 1, 3), C=(0, 1, 8), D=(1, 2, 5))
        assert replay.spans["D"] == (8, 13)
        assert replay.nodes["D"] == {1: 2}

    def test_any_spreads_what_cannot_be_consolidated(self) -> None:
        rows: dict[str, Row] = {
            "A": (0, 3, 10),
            "B": (0, 3, 10),
            "C": (0, 2, 5),
        }  # A on node 0, B on node 1, 1 free each
        assert play("2x4", "fifo", **rows).spans["C"] == (10, 15)
        spread = play("2x4", "fifo", **rows).under(placement="any")
        assert spread.spans["C"] == (0, 5)
        assert spread.nodes["C"] == {0: 1, 1: 1}

    def test_any_takes_the_freest_nodes_first(self) -> None:
        # Free: node 0: 1, node 1: 2, node 2: 1. D takes both of node 1, then the lower of the two others.
        rows: dict[str, Row] = {"A": (0, 3, 10), "B": (0, 2, 10), "C": (0, 3, 10), "D": (0, 3, 5)}
        assert play("3x4", "fifo", **rows).under(placement="any").nodes["D"] == {1: 2, 0: 1}

    def test_any_still_consolidates_where_possible(self) -> None:
        # Node 0 has 2 free, node 1 is empty: best fit, not the freest node.
        assert play("2x4", "fifo", A=(0, 2, 9), B=(0, 2, 9)).under(placement="any").nodes["B"] == {0: 2}


class TestFifo:
    def test_no_job_passes_the_head(self) -> None:
        # A holds 3 of 4 until 10. B needs 4: 10-15. C would fit beside A at 2 but waits behind B: 15-17.
        replay = play("1x4", "fifo", A=(0, 3, 10), B=(1, 4, 5), C=(2, 1, 2))
        assert replay.spans == {"A": (0, 10), "B": (10, 15), "C": (15, 17)}

    def test_rows_are_sorted_by_submission_and_ties_keep_the_order_of_the_trace(self) -> None:
        # B and C both at 5, B first in the trace: A 0-10, B 10-13, C 13-14.
        replay = play("1x1", "fifo", B=(5, 1, 3), A=(0, 1, 10), C=(5, 1, 1))
        assert replay.spans == {"A": (0, 10), "B": (10, 13), "C": (13, 14)}

    def test_order_of_submission_counts_not_order_of_the_trace(self) -> None:
        # Rows B, A, X. Both wait for X at 10, A since 1: A 10-12, B 12-15.
        replay = play("1x1", "fifo", B=(5, 1, 3), A=(1, 1, 2), X=(0, 1, 10))
        assert replay.spans == {"X": (0, 10), "A": (10, 12), "B": (12, 15)}

    def test_arrival_at_the_instant_of_a_finish_starts_at_once(self) -> None:
        assert play("1x1", "fifo", A=(0, 1, 10), B=(10, 1, 5)).spans == {"A": (0, 10), "B": (10, 15)}

    def test_equal_fractions_of_a_second_meet_exactly(self) -> None:
        third = Fraction(1, 3)
        jobs = [Job("A", Fraction(0), 1, third), Job("B", third, 1, 2 * third), Job("C", Fraction(1), 1, third)]
        results = simulate(jobs, 1, 1, "srtf")
        assert [results[name].finish for name in "ABC"] == [third, 1, Fraction(4, 3)]
        assert [results[name].preemptions for name in "ABC"] == [0, 0, 0]

    def test_idle_time_between_jobs(self) -> None:
        # B arrives when the cluster has been empty for 90 s.
        assert play("1x1", "fifo", A=(0, 1, 10), B=(100, 1, 5)).spans["B"] == (100, 105)

    def test_a_job_of_no_duration_takes_its_turn_and_no_time(self) -> None:
        # A 0-10; then B at 10, done at 10, and C in the decision that follows.
        assert play("1x1", "fifo", A=(0, 1, 10), B=(1, 1, 0), C=(1, 1, 2)).spans == {
            "A": (0, 10),
            "B": (10, 10),
            "C": (10, 12),
        }


class TestFifoSkip:
    def test_a_job_that_fits_passes_one_that_does_not(self) -> None:
        # As for fifo above, but C starts beside A at once.
        replay = play("1x4", "fifo-skip", A=(0, 3, 10), B=(1, 4, 5), C=(2, 1, 2))
        assert replay.spans == {"A": (0, 10), "B": (10, 15), "C": (2, 4)}

    def test_arrival_order_among_those_that_fit(self) -> None:
        # At 10: B takes 3, C (2) does not fit in 1, D (1) does. At 15 C.
        replay = play("1x4", "fifo-skip", A=(0, 4, 10), B=(1, 3, 5), C=(2, 2, 5), D=(3, 1, 5))
        assert replay.spans == {"A": (0, 10), "B": (10, 15), "C": (15, 20), "D": (10, 15)}

    def test_a_large_job_starves_while_small_ones_keep_coming(self) -> None:
        # A 0-4, B (2 GPUs) waits; C 3-7 beside A, D 6-10 beside C: never 2 GPUs free before 10.
        replay = play("1x2", "fifo-skip", A=(0, 1, 4), B=(1, 2, 1), C=(3, 1, 4), D=(6, 1, 4))
        assert replay.spans["B"] == (10, 11)


class TestSjf:
    def test_shortest_first_ties_by_arrival_and_no_job_is_stopped(self) -> None:
        # At 10: C and D (3 each) before B (5), C before D: C 10-13, D 13-16, B 16-21.
        replay = play("1x1", "sjf", A=(0, 1, 10), B=(1, 1, 5), C=(2, 1, 3), D=(3, 1, 3))
        assert replay.spans == {"A": (0, 10), "B": (16, 21), "C": (10, 13), "D": (13, 16)}
        assert sum(replay.preemptions.values()) == 0

    def test_every_job_that_fits_starts(self) -> None:
        # B (1 s) needs 4 and is shortest; C (20 s) fits beside A and goes 2-22. B 22-23.
        replay = play("1x4", "sjf", A=(0, 2, 10), B=(1, 4, 1), C=(2, 2, 20))
        assert replay.spans == {"A": (0, 10), "B": (22, 23), "C": (2, 22)}

    def test_a_batch_at_one_instant_gets_one_decision(self) -> None:
        # Were A decided on before B and C arrive, it would run first.
        replay = play("1x1", "sjf", A=(0, 1, 3), B=(0, 1, 1), C=(0, 1, 2))
        assert replay.spans == {"A": (3, 6), "B": (0, 1), "C": (1, 3)}

    def test_order_is_by_duration_not_by_gpu_seconds(self) -> None:
        # At 10: B (4 GPUs x 3 s) before C (1 GPU x 4 s). B 10-13, C 13-17.
        replay = play("1x4", "sjf", A=(0, 4, 10), B=(1, 4, 3), C=(1, 1, 4))
        assert replay.spans == {"A": (0, 10), "B": (10, 13), "C": (13, 17)}


class TestFewestGpus:
    def test_small_before_large(self) -> None:
        # At 10: D (1), C (3) fill the node; B (4) 11-12.
        replay = play("1x4", "fewest-gpus", A=(0, 4, 10), B=(1, 4, 1), C=(2, 3, 1), D=(3, 1, 1))
        assert replay.spans == {"A": (0, 10), "B": (11, 12), "C": (10, 11), "D": (10, 11)}

    def test_equal_sizes_in_order_of_arrival(self) -> None:
        # At 10: B and C. D follows C at 11.
        replay = play("1x4", "fewest-gpus", A=(0, 4, 10), B=(1, 2, 7), C=(2, 2, 1), D=(3, 2, 1))
        assert replay.spans == {"A": (0, 10), "B": (10, 17), "C": (10, 11), "D": (11, 12)}


class TestBackfill:
    def test_a_later_job_starts_if_it_ends_by_the_time_of_the_head(self) -> None:
        # B needs all: T = 10. C ends at 2 + 8 = 10, just in time.
        replay = play("1x4", "backfill", A=(0, 3, 10), B=(1, 4, 5), C=(2, 1, 8))
        assert replay.spans == {"A": (0, 10), "B": (10, 15), "C": (2, 10)}

    def test_a_later_job_that_would_delay_the_head_waits(self) -> None:
        # C would end at 11 and leave B only 3 of 4 GPUs at 10. So B 10-15, C 15-24.
        replay = play("1x4", "backfill", A=(0, 3, 10), B=(1, 4, 5), C=(2, 1, 9))
        assert replay.spans == {"A": (0, 10), "B": (10, 15), "C": (15, 24)}

    def test_a_long_job_starts_where_the_head_does_not_need_the_gpus(self) -> None:
        # A on node 0, B on node 1. H needs a node: T = 10, node 0. C goes to node 1 (2 free) until 102.
        replay = play("2x4", "backfill", A=(0, 4, 10), B=(0, 2, 20), H=(1, 4, 5), C=(2, 2, 100))
        assert replay.spans == {"A": (0, 10), "B": (0, 20), "H": (10, 15), "C": (2, 102)}
        assert replay.nodes["H"] == {0: 4}

    def test_only_the_best_fit_is_tried(self) -> None:
        # A on node 0 (1 free), B on node 1 (2 free), H: T = 10, node 0. C's best fit is node 0, where it would be in
        # H's way; node 1 would do and is not tried. C starts at 10 with H, on node 1.
        replay = play("2x4", "backfill", A=(0, 3, 10), B=(0, 2, 30), H=(1, 4, 5), C=(2, 1, 100))
        assert replay.spans == {"A": (0, 10), "B": (0, 30), "H": (10, 15), "C": (10, 110)}
        assert replay.nodes["C"] == {1: 1}

    def test_jobs_started_in_the_same_pass_count_for_the_time(self) -> None:
        # All at 0. A, B start. At 4, 1 + 1 GPUs are free: not enough for H; at 10 all: T = 10. C ends by 10 and starts.
        # D (1 GPU, 11 s): nothing is free at 0. At 4, D would end at 15 > 10 and take a GPU from H. So H 10-15, D 15-26.
        replay = play("1x4", "backfill", A=(0, 2, 10), B=(0, 1, 4), H=(0, 4, 5), C=(0, 1, 10), D=(0, 1, 11))
        assert replay.spans == {"A": (0, 10), "B": (0, 4), "H": (10, 15), "C": (0, 10), "D": (15, 26)}

    def test_gpus_of_jobs_backfilled_before_count_against_the_next(self) -> None:
        # A on node 0; H needs 4 + 2. T = 10: node 0 (or 1) whole and 2 on the other. C (2 on node 1, to 102): at 10 node 0
        # is empty and node 1 has 2 free: yes. D (1, to 103): node 1 would have 1 free: no. E (1, 4-10): ends by T: yes.
        # H 10-15 on node 0 and the 2 free of node 1; D 15-115.
        rows: dict[str, Row] = {"A": (0, 4, 10), "H": (1, 6, 5), "C": (2, 2, 100), "D": (3, 1, 100), "E": (4, 1, 6)}
        replay = play("2x4", "backfill", **rows)
        assert replay.spans == {"A": (0, 10), "H": (10, 15), "C": (2, 102), "D": (15, 115), "E": (4, 10)}
        assert replay.nodes["H"] == {0: 4, 1: 2}

    def test_gpus_of_jobs_backfilled_before_are_free_again_if_they_end_by_the_time(self) -> None:
        # As above, T = 10. C (2 on node 1, 2-7). D (2, to 102): at 10 node 1 has the 2 of C for the remainder of H.
        replay = play("2x4", "backfill", A=(0, 4, 10), H=(1, 6, 5), C=(2, 2, 5), D=(2, 2, 100))
        assert replay.spans == {"A": (0, 10), "H": (10, 15), "C": (2, 7), "D": (2, 102)}

    def test_the_time_is_the_earliest_at_which_the_head_can_be_placed_not_when_all_are_done(self) -> None:
        # A 0-10 (2), B 0-20 (2). H needs 2: T = 10. C (2 s at 1) finds nothing free; at 10 H 10-15, then C 15-17.
        # L (4 GPUs) is the head from 15 on; T = 20.
        replay = play("1x4", "backfill", A=(0, 2, 10), B=(0, 2, 20), H=(1, 2, 5), C=(1, 2, 2), L=(2, 4, 1))
        assert replay.spans == {"A": (0, 10), "B": (0, 20), "H": (10, 15), "C": (15, 17), "L": (20, 21)}

    def test_the_reservation_is_made_again_for_the_next_head(self) -> None:
        # A 0-10 (3 of 4). H: T = 10. H 10-12. K (4) becomes the head at 10: T = 12. C (1 GPU, 3 s) at 3 would end at
        # 6 <= 10: starts. D (1, 7 s) at 4: C holds the GPU; at 6 it would end at 13 > 10: no. H 10-12, K 12-13, D 13-20.
        replay = play("1x4", "backfill", A=(0, 3, 10), H=(1, 4, 2), K=(2, 4, 1), C=(3, 1, 3), D=(4, 1, 7))
        assert replay.spans == {"A": (0, 10), "H": (10, 12), "K": (12, 13), "C": (3, 6), "D": (13, 20)}

    def test_with_placement_any_the_head_needs_only_the_number(self) -> None:
        # A, B on node 0, C, D on node 1; A and C end at 10: one GPU free on each. H needs 2.
        # Consolidated: T = 50; L at 10 ends at 40 <= 50 and starts; H 50-55. Any: H 10-15 on both nodes, L 15-45.
        rows: dict[str, Row] = {
            "A": (0, 1, 10), "B": (0, 1, 50), "C": (0, 1, 10), "D": (0, 1, 50), "H": (1, 2, 5), "L": (2, 1, 30),
        }  # fmt: skip
        consolidated = play("2x2", "backfill", **rows).spans
        assert (consolidated["H"], consolidated["L"]) == ((50, 55), (10, 40))
        spread = play("2x2", "backfill", **rows).under(placement="any")
        assert (spread.spans["H"], spread.spans["L"]) == ((10, 15), (15, 45))
        assert spread.nodes["H"] == {0: 1, 1: 1}


class TestMistakes:
    @pytest.mark.parametrize("policy", ["fifo", "srtf"])
    def test_a_job_larger_than_the_cluster_is_refused(self, policy: str) -> None:
        with pytest.raises(ValueError, match="job A asks for 9 GPUs of 8"):
            _ = play("2x4", policy, A=(0, 9, 1)).results

    def test_meaningless_options_are_refused(self) -> None:
        one = [job("A", (0, 1, 1))]
        with pytest.raises(ValueError, match="no policy"):
            simulate(one, 1, 1, "lifo")
        with pytest.raises(ValueError, match="no placement"):
            simulate(one, 1, 1, "fifo", placement="spread")
        with pytest.raises(ValueError, match="same id"):
            simulate(one * 2, 1, 1, "fifo")
        with pytest.raises(ValueError, match="negative"):
            simulate([job("A", (0, 1, -1))], 1, 1, "fifo")
        with pytest.raises(ValueError, match="round_s"):
            simulate(one, 1, 1, "las", round_s=0)
        with pytest.raises(ValueError, match="has no GPUs"):
            simulate(one, 0, 1, "fifo")

    def test_an_empty_trace_has_no_results(self) -> None:
        assert simulate([], 1, 1, "srtf") == {}
