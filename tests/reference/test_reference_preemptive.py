"""Hand-computed scenarios for the reference simulator, so that it can be trusted: policies that may stop a running job.

Times in seconds; "1x4" = 1 node, 4 GPUs. In comments, "A 0-10" is "A runs from 0 to 10", "A 10 left" its remaining work.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import pytest

from tests.reference import Job, simulate
from tests.reference.scenario import Row, play


class TestSrtf:
    def test_a_shorter_job_stops_a_longer_one(self) -> None:
        # A 0-2 (8 left), B 2-5, A 5-13.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(2, 1, 3))
        assert replay.spans == {"A": (0, 13), "B": (2, 5)}
        assert replay.preemptions == {"A": 1, "B": 0}
        assert replay.results["A"].service == 10

    def test_equal_remaining_work_keeps_the_earlier_job(self) -> None:
        # At 5 A has 5 left, as B.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(5, 1, 5))
        assert replay.spans == {"A": (0, 10), "B": (10, 15)}
        assert replay.preemptions == {"A": 0, "B": 0}

    def test_a_waiting_job_wins_a_tie_against_a_running_one_that_came_later(self) -> None:
        # Order at 0: X 3, A 10, B 13. X starts; A (2 GPUs) does not fit beside it; B does. At 3: A 10, B 10 left: A first,
        # and B is stopped. A 3-13, B 13-23.
        replay = play("1x2", "srtf", X=(0, 1, 3), A=(0, 2, 10), B=(0, 1, 13))
        assert replay.spans == {"X": (0, 3), "A": (3, 13), "B": (0, 23)}
        assert replay.preemptions == {"X": 0, "A": 0, "B": 1}

    def test_smaller_or_later_jobs_pass_one_that_does_not_fit(self) -> None:
        # B (5 s) needs 4; with A (4 s, 1 GPU) first it does not fit, C (50 s, 3 GPUs) does. At 4: B 5, C 46: C is stopped.
        # B 4-9, C 9-55.
        replay = play("1x4", "srtf", A=(0, 1, 4), B=(0, 4, 5), C=(0, 3, 50))
        assert replay.spans == {"A": (0, 4), "B": (4, 9), "C": (0, 55)}

    def test_a_running_job_is_stopped_never_moved(self) -> None:
        # 2x2 at 0: order B (4), C (90), A (100): B, C on node 0, A on node 1. B ends at 4. At 5: order D 50, C 85, A 95.
        # D alone would get node 0; with C in its place there, node 1; with A in its place on node 1 it finds no node, so A
        # is not selected: it stops although node 0 has a GPU free. At 55 D ends: C 35, A 95, and A starts on node 0
        # (best fit): 55-150.
        replay = play("2x2", "srtf", A=(0, 1, 100), B=(0, 1, 4), C=(0, 1, 90), D=(5, 2, 50))
        assert replay.spans == {"A": (0, 150), "B": (0, 4), "C": (0, 90), "D": (5, 55)}
        assert replay.nodes == {"A": {0: 1}, "B": {0: 1}, "C": {0: 1}, "D": {1: 2}}
        assert replay.preemptions == {"A": 1, "B": 0, "C": 0, "D": 0}

    def test_newcomers_are_laid_out_again_around_a_running_job_that_is_selected_later(self) -> None:
        # A (50) runs on node 0. At 1: order B (4 GPUs, 10), A (49). B alone would take node 0; with A there, node 1.
        replay = play("2x4", "srtf", A=(0, 1, 50), B=(1, 4, 10))
        assert replay.spans == {"A": (0, 50), "B": (1, 11)}
        assert replay.nodes["B"] == {1: 4}

    def test_newcomers_are_placed_in_order_of_selection(self) -> None:
        # Order: C (1 s, 2 GPUs) on node 0, B (2 s, 3 GPUs) on node 1, A (3 s, 2 GPUs) on node 0.
        replay = play("2x4", "srtf", A=(0, 2, 3), B=(0, 3, 2), C=(0, 2, 1))
        assert replay.nodes == {"A": {0: 2}, "B": {1: 3}, "C": {0: 2}}

    def test_one_decision_when_a_finish_meets_an_arrival(self) -> None:
        # At 10 A finishes and C arrives; B (20) waits since 5. One decision: C (3) 10-13, B 13-33. Two would start B and
        # stop it.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(5, 1, 20), C=(10, 1, 3))
        assert replay.spans == {"A": (0, 10), "B": (13, 33), "C": (10, 13)}
        assert replay.preemptions == {"A": 0, "B": 0, "C": 0}

    def test_a_gang_across_nodes_stops_what_is_in_its_way(self) -> None:
        # A on node 0 (1 GPU). At 1 B on node 1 (4). At 2: G (5 = 4 + 1) 10, B 49, A 98 left, in that order. G beside B: node
        # 0 whole, but nothing on node 1 for the remainder: B stops. G beside A: node 1 whole + 1 on node 0. G 2-12, B 12-61.
        replay = play("2x4", "srtf", A=(0, 1, 100), B=(1, 4, 50), G=(2, 5, 10))
        assert replay.spans == {"A": (0, 100), "B": (1, 61), "G": (2, 12)}
        assert replay.nodes["G"] == {1: 4, 0: 1}
        assert replay.preemptions == {"A": 0, "B": 1, "G": 0}


class TestSrsf:
    def test_remaining_work_is_weighed_with_gpus(self) -> None:
        # At 2: A 8 s x 4 = 32, B 20 s x 1 = 20: B 2-22, A 22-30. srtf would let A finish.
        replay = play("1x4", "srsf", A=(0, 4, 10), B=(2, 1, 20))
        assert replay.spans == {"A": (0, 30), "B": (2, 22)}
        assert play("1x4", "srtf", A=(0, 4, 10), B=(2, 1, 20)).spans == {"A": (0, 10), "B": (10, 30)}

    def test_equal_products_keep_the_earlier_job(self) -> None:
        # At 5: A 5 x 4 = 20 = B 20 x 1.
        assert play("1x4", "srsf", A=(0, 4, 10), B=(5, 1, 20)).spans == {"A": (0, 10), "B": (10, 30)}

    def test_a_large_job_yields_to_a_small_one_that_takes_longer(self) -> None:
        # At 0: A 100, B 4 x 50 = 200, C 3 x 100 = 300: A and C run, B does not fit beside A. At 50: A 50, D 60, C 3 x 50 = 150,
        # B 200: beside A and D there is no room for C. At 100 A ends: D 10, C 150: C 100-150. D 50-110. B 150-200.
        replay = play("1x4", "srsf", A=(0, 1, 100), B=(0, 4, 50), C=(0, 3, 100), D=(50, 1, 60))
        assert replay.spans == {"A": (0, 100), "B": (150, 200), "C": (0, 150), "D": (50, 110)}


class TestCounts:
    ROWS: ClassVar[dict[str, Row]] = {"A": (0, 1, 3), "B": (0, 1, 10), "C": (0, 1, 20), "D": (4, 2, 5)}

    def test_srtf_places_jobs_and_stops_those_in_the_way(self) -> None:
        # A, B on node 0, C on node 1; A ends at 3. At 4: D 5, B 6, C 16: D on node 1 beside B's node 0: C stops.
        # At 9 C starts on node 0, 16 left: 9-25.
        replay = play("2x2", "srtf", **self.ROWS)
        assert replay.spans == {"A": (0, 3), "B": (0, 10), "C": (0, 25), "D": (4, 9)}
        assert replay.nodes["D"] == {1: 2}

    def test_srtf_count_looks_at_the_total_only(self) -> None:
        # 2 + 1 + 1 = 4 GPUs: all run, D on both nodes.
        replay = play("2x2", "srtf-count", **self.ROWS)
        assert replay.spans == {"A": (0, 3), "B": (0, 10), "C": (0, 20), "D": (4, 9)}
        assert replay.nodes["D"] == {0: 1, 1: 1}

    def test_srtf_count_selects_by_the_total(self) -> None:
        # 1x4 at 0: A (2 GPUs, 1 s), B (3 GPUs, 2 s) exceeds 4, C (2 GPUs, 3 s) fits. At 1: B 2 left, C 2 left: B first,
        # C is stopped. B 1-3, C 3-5.
        replay = play("1x4", "srtf-count", A=(0, 2, 1), B=(0, 3, 2), C=(0, 2, 3))
        assert replay.spans == {"A": (0, 1), "B": (1, 3), "C": (0, 5)}

    def test_las_count_looks_at_the_total_only(self) -> None:
        # A, B on node 0, C on node 1. A ends at 100. D (150, attained 0) before B, C (150 each).
        # las: D needs node 1 beside B: C stops, 150-200, and goes on with 250 left: 200-450. Count: all run.
        rows: dict[str, Row] = {"A": (0, 1, 100), "B": (0, 1, 300), "C": (0, 1, 400), "D": (150, 2, 50)}
        assert play("2x2", "las", **rows).spans["C"] == (0, 450)
        assert play("2x2", "las-count", **rows).spans == {"A": (0, 100), "B": (0, 300), "C": (0, 400), "D": (150, 200)}

    def test_las_count_has_rounds(self) -> None:
        # As TestLas.test_equal_service_goes_to_the_earlier_job.
        replay = play("1x1", "las-count", A=(0, 1, 20), B=(0, 1, 20)).under(round_s=10)
        assert replay.spans == {"A": (0, 30), "B": (10, 40)}


class TestLas:
    def test_rounds_are_whole_multiples_of_their_length(self) -> None:
        # A 0-100; B (0) comes: B 100-300; at 300 B 200, A 100: A to 600 (400); B to 900 (500); A to 1200 (700);
        # B to 1500 (800); A to 1800 (1000, done); B to 2000.
        replay = play("1x1", "las", A=(0, 1, 1000), B=(100, 1, 1000))
        assert replay.spans == {"A": (0, 1800), "B": (100, 2000)}
        assert replay.preemptions == {"A": 3, "B": 3}  # A at 100, 600, 1200; B at 300, 900, 1500

    def test_equal_service_goes_to_the_earlier_job(self) -> None:
        # A 0-10, B 10-20, both 10: A 20-30 (done), B 30-40.
        replay = play("1x1", "las", A=(0, 1, 20), B=(0, 1, 20)).under(round_s=10)
        assert replay.spans == {"A": (0, 30), "B": (10, 40)}
        assert replay.preemptions == {"A": 1, "B": 1}

    def test_service_is_counted_in_gpu_seconds(self) -> None:
        # A (1 GPU), B (4 GPUs) exclude each other. A 0-10 (10), B 10-20 (40), A until it has more than 40: 20-60 (at 50:
        # 40 = 40, A stays; at 60: 50). B 60-70 (done), A 70-120.
        replay = play("1x4", "las", A=(0, 1, 100), B=(0, 4, 20)).under(round_s=10)
        assert replay.spans == {"A": (0, 120), "B": (10, 70)}
        assert replay.preemptions == {"A": 2, "B": 1}

    def test_no_rounds_between_multiples(self) -> None:
        # A 0-7. B 7-20: at 10 it has had 3, less than A's 7; at 20 13. A 20-30 (17). B 30-40 (23). A 40-43 (20, done).
        # B 43-50.
        replay = play("1x1", "las", A=(0, 1, 20), B=(7, 1, 30)).under(round_s=10)
        assert replay.spans == {"A": (0, 43), "B": (7, 50)}

    def test_rounds_of_a_fraction_of_a_second(self) -> None:
        # As the case above, all times a thirtieth.
        jobs = [Job("A", Fraction(0), 1, Fraction(20, 30)), Job("B", Fraction(7, 30), 1, Fraction(1))]
        results = simulate(jobs, 1, 1, "las", round_s=Fraction(1, 3))
        assert (results["A"].finish, results["B"].finish) == (Fraction(43, 30), Fraction(50, 30))

    def test_a_round_meets_an_arrival_in_one_decision(self) -> None:
        # A 0-5, B 5-10: both have had 5. At 10 a round and C's arrival: C (0) 10-15. A 15-20 (10); B 20-30 (15); A 30-40
        # (20, done); B 40-45. Were the round decided on first, B would be stopped for A, and A for C.
        replay = play("1x1", "las", A=(0, 1, 20), B=(5, 1, 20), C=(10, 1, 5)).under(round_s=10)
        assert replay.spans == {"A": (0, 40), "B": (5, 45), "C": (10, 15)}
        assert replay.preemptions == {"A": 2, "B": 2, "C": 0}  # A at 5, 20; B at 10, 30


class TestTiresias:
    def test_a_job_beyond_the_threshold_yields_at_the_next_round(self) -> None:
        # A has 2,400 GPU-seconds at 300: first queue, and before B. At 600 it has 4,800: B 600-700, A 700-1100.
        replay = play("1x8", "tiresias", A=(0, 8, 1000), B=(10, 8, 100))
        assert replay.spans == {"A": (0, 1100), "B": (600, 700)}
        assert replay.preemptions == {"A": 1, "B": 0}

    def test_exactly_the_threshold_is_the_second_queue(self) -> None:
        # At 400 A has 8 x 400 = 3,200.
        replay = play("1x8", "tiresias", A=(0, 8, 1000), B=(10, 8, 100)).under(round_s=400)
        assert replay.spans == {"A": (0, 1100), "B": (400, 500)}

    def test_first_in_first_out_within_both_queues(self) -> None:
        # A to 400 (3,200), B to 800 (3,200; in the first queue before), then by submission: A 800-1200, B 1200-1600.
        replay = play("1x8", "tiresias", A=(0, 8, 800), B=(0, 8, 800)).under(round_s=100)
        assert replay.spans == {"A": (0, 1200), "B": (400, 1600)}
        assert replay.preemptions == {"A": 1, "B": 1}

    def test_an_arrival_does_not_stop_an_earlier_job_of_the_first_queue(self) -> None:
        # A has 800 at 100 and finishes at 300 with 2,400.
        replay = play("1x8", "tiresias", A=(0, 8, 300), B=(100, 8, 1))
        assert replay.spans == {"A": (0, 300), "B": (300, 301)}


class TestNotPreemptible:
    @pytest.mark.parametrize("policy", ["srtf", "srtf-count", "srsf", "las", "las-count"])
    def test_a_running_job_keeps_its_place(self, policy: str) -> None:
        # A has more left and more attained than B, and rounds pass at 300, 600, 900.
        replay = play("1x1", policy, A=(0, 1, 1000), B=(1, 1, 1)).pin("A")
        assert replay.spans == {"A": (0, 1000), "B": (1000, 1001)}

    def test_tiresias_keeps_it_too(self) -> None:
        replay = play("1x8", "tiresias", A=(0, 8, 1000), B=(1, 8, 1)).pin("A")
        assert replay.spans == {"A": (0, 1000), "B": (1000, 1001)}

    def test_others_are_selected_around_it(self) -> None:
        # C (2 GPUs, 1 s) is first in the order, but A's GPU is taken before any job is selected; B stays.
        rows: dict[str, Row] = {"A": (0, 1, 100), "B": (0, 1, 50), "C": (2, 2, 1)}
        assert play("1x2", "srtf", **rows).pin("A").spans == {"A": (0, 100), "B": (0, 50), "C": (100, 101)}
        assert play("1x2", "srtf", **rows).spans == {"A": (0, 101), "B": (0, 51), "C": (2, 3)}

    def test_it_has_no_privilege_while_it_waits(self) -> None:
        # A (10 s, not preemptible) and B (1 s) come together: B 0-1, A 1-11; C at 2 waits.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(0, 1, 1), C=(2, 1, 1)).pin("A")
        assert replay.spans == {"A": (1, 11), "B": (0, 1), "C": (11, 12)}


class TestPreemptCost:
    def test_overhead_comes_before_work_and_counts_as_service(self) -> None:
        # A 0-2 (8 left), B 2-5, A 5-9 overhead, 9-17 work.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(2, 1, 3)).under(preempt_cost=4)
        assert replay.spans == {"A": (0, 17), "B": (2, 5)}
        assert replay.results["A"].service == 14

    def test_what_is_left_of_the_overhead_is_kept(self) -> None:
        # A 0-2; B 2-5; A 5-6 (1 of 4 served), stopped: 3 + 4 = 7; C 6-7; A 7-14 overhead, 14-22 work.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(2, 1, 3), C=(6, 1, 1)).under(preempt_cost=4)
        assert replay.spans == {"A": (0, 22), "B": (2, 5), "C": (6, 7)}
        assert replay.results["A"].service == 2 + 1 + 7 + 8
        assert replay.preemptions["A"] == 2

    def test_policies_see_work_without_overhead(self) -> None:
        # At 8 A has 2 left, B 1: B 8-9. A 9-109 overhead, 2 of work: 111. At 10 C (3) does not stop it: C 111-114.
        replay = play("1x1", "srtf", A=(0, 1, 10), B=(8, 1, 1), C=(10, 1, 3)).under(preempt_cost=100)
        assert replay.spans == {"A": (0, 111), "B": (8, 9), "C": (111, 114)}

    def test_attained_service_includes_overhead(self) -> None:
        # Cost 80, rounds of 100. A 0-50, B 50-60, A from 60: overhead. At 120 C comes: A has had 50 + 60 = 110 (20 of its
        # overhead unserved). At 200: C 80 < 110 stays (it would not against the 50 of work). C 120-270. A 270-370 overhead
        # (20 + 80), 370-420 the 50 left. Service 50 + 60 + 150.
        rows: dict[str, Row] = {"A": (0, 1, 100), "B": (50, 1, 10), "C": (120, 1, 150)}
        replay = play("1x1", "las", **rows).under(round_s=100, preempt_cost=80)
        assert replay.spans == {"A": (0, 420), "B": (50, 60), "C": (120, 270)}
        assert replay.preemptions == {"A": 2, "B": 0, "C": 0}
        assert replay.results["A"].service == 260

    def test_rounds_of_two_jobs_that_pay_every_time(self) -> None:
        # Rounds of 100 alternate; every run but the first is 50 overhead + 50 work: A 100, 4 x 50; B 100, 4 x 50.
        # A 0-100, B -200, A -300, B -400, A -500, B -600, A -700, B -800, A -900 (300 of work). B, stopped at 200, 400, 600,
        # 800, has 100 + 3 x 50 and needs 50 + 50 more: 1000.
        replay = play("1x1", "las", A=(0, 1, 300), B=(0, 1, 300)).under(round_s=100, preempt_cost=50)
        assert replay.spans == {"A": (0, 900), "B": (100, 1000)}
        assert replay.preemptions == {"A": 4, "B": 4}

    def test_a_job_occupies_its_gpus_during_overhead(self) -> None:
        # At 1 A (2 GPUs, 9 left) yields to B: B 1-2, A 2-7 overhead, 7-16. C (3, 20 s, 1 GPU) waits until 16.
        replay = play("1x2", "srtf", A=(0, 2, 10), B=(1, 1, 1), C=(3, 1, 20)).under(preempt_cost=5)
        assert replay.spans == {"A": (0, 16), "B": (1, 2), "C": (16, 36)}
