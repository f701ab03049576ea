"""Conversion of the state of a policy's continued learning to its message, and back."""

from __future__ import annotations

import math
import re
from typing import Any

from policies.api import LearningStatus
from policies.documents import printable
from policies.wire.columns import refuse
from protos.headway.v1 import policy_pb2

_COUNTS = (
    *("history_jobs", "history_bytes", "outcomes_refused", "attempts", "promotions"),
    *("feedback_samples", "feedback_updates", "feedback_left_out"),
)
_TIMES = ("weights_since_s", "last_attempt_s")
_TEXTS = ("last_result", "last_reason", "problem")
_MOST_CHARACTERS = 300


def encode_learning(status: LearningStatus) -> policy_pb2.Learning:
    """Return the message of a policy's learning; long texts are cut."""
    message = policy_pb2.Learning(training=status.training, weights_sha256=status.weights_sha256)
    for name in (*_COUNTS, *_TIMES):
        setattr(message, name, getattr(status, name))
    for name in _TEXTS:
        setattr(message, name, getattr(status, name)[:_MOST_CHARACTERS])
    for name in ("change", "ci95"):
        if (value := getattr(status, name)) is not None:
            setattr(message, name, value)
    return message


def decode_learning(message: policy_pb2.Learning) -> LearningStatus:
    """Return the state that a message describes. Raises WireError."""
    if not re.fullmatch(r"[0-9a-f]{0,64}", message.weights_sha256):
        refuse("learning.weights_sha256", "is not a hexadecimal digest")
    for name in _TEXTS:
        if len(getattr(message, name)) > _MOST_CHARACTERS:
            refuse(f"learning.{name}", f"has more than {_MOST_CHARACTERS} characters")
    for name in (*_TIMES, "change", "ci95"):
        if not math.isfinite(getattr(message, name)):
            refuse(f"learning.{name}", "is not a finite number")
    texts: dict[str, Any] = {name: printable(getattr(message, name)) for name in _TEXTS}
    return LearningStatus(
        training=message.training,
        weights_sha256=message.weights_sha256,
        change=message.change if message.HasField("change") else None,
        ci95=message.ci95 if message.HasField("ci95") else None,
        **{name: getattr(message, name) for name in (*_COUNTS, *_TIMES)},
        **texts,
    )
