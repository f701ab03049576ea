"""Token buckets: a rate with a burst."""

from policies.serving.runtime.tasks.token_bucket import TokenBucket


def test_a_token_bucket_allows_a_burst_and_then_its_rate():
    bucket = TokenBucket(10.0, 3, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.take(0.1)
    assert not bucket.take(0.1)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(50.0)  # a clock that goes back gives nothing


def test_credit_is_paid_back_at_the_rate():
    bucket = TokenBucket(10.0, 2, 0.0)
    assert [bucket.delay_s(0.0) for _ in range(4)] == [0.0, 0.0, 0.1, 0.2]
    assert bucket.delay_s(0.3) == 0.0
    assert not bucket.take(0.3)
