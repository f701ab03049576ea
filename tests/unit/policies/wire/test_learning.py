"""The state of learning on the wire: it is read back equal, and read strictly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.api import LearningStatus, PolicySpec
from policies.documents import printable
from policies.errors import WireError
from policies.wire.messages import decode_spec, encode_spec
from protos.headway.v1 import policy_pb2

COUNT = st.integers(0, 2**63)
TIME = st.floats(0, 1e12)
MAYBE = st.none() | st.floats(-1e9, 1e9)
STATUS = st.builds(
    LearningStatus,
    training=st.booleans(),
    weights_sha256=st.text("0123456789abcdef", max_size=64),
    weights_since_s=TIME,
    history_jobs=COUNT,
    history_bytes=COUNT,
    outcomes_refused=COUNT,
    feedback_samples=COUNT,
    feedback_updates=COUNT,
    feedback_left_out=COUNT,
    attempts=COUNT,
    promotions=COUNT,
    last_attempt_s=TIME,
    last_result=st.text(max_size=20),
    last_reason=st.text(max_size=300),
    change=MAYBE,
    ci95=MAYBE,
    problem=st.text(max_size=300),
)


@given(STATUS)
def test_it_is_read_as_it_was_sent_with_printable_words(status: LearningStatus) -> None:
    spec = PolicySpec(name="dl2", source="tests", learning=status)
    words = {name: printable(getattr(status, name)) for name in ("last_result", "last_reason", "problem")}
    assert decode_spec(encode_spec(spec)).learning == replace(status, **words)


def test_without_learning_there_is_nothing() -> None:
    spec = PolicySpec(name="dl2", source="tests")
    assert not encode_spec(spec).HasField("learning")
    assert decode_spec(encode_spec(spec)).learning is None
    # it is no property of the policy
    assert spec == PolicySpec(name="dl2", source="tests", learning=LearningStatus())


def test_long_texts_are_cut() -> None:
    spec = PolicySpec(name="dl2", source="tests", learning=LearningStatus(problem="x" * 5000))
    found = decode_spec(encode_spec(spec)).learning
    assert found is not None
    assert found.problem == "x" * 300


@pytest.mark.parametrize(
    "learning",
    [
        policy_pb2.Learning(weights_sha256="not hex"),
        policy_pb2.Learning(weights_sha256="a" * 65),
        policy_pb2.Learning(problem="x" * 301),
        policy_pb2.Learning(last_attempt_s=math.inf),
        policy_pb2.Learning(change=math.nan),
    ],
)
def test_a_message_that_is_none_is_refused(learning: policy_pb2.Learning) -> None:
    message = encode_spec(PolicySpec(name="dl2", source="tests"))
    message.learning.CopyFrom(learning)
    with pytest.raises(WireError, match="learning"):
        decode_spec(message)
