"""The digest of a state does not depend on the kind of its missing values."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from policies.wire.messages import state_digest
from tests.unit.policies.wire.test_messages import sample


def test_every_nan_has_the_same_digest_and_none_warns() -> None:
    state = sample()
    digests = set()
    for missing in (np.array([np.nan]), np.frombuffer(struct.pack("<Q", 0x7FF0000000000001), "<f8")):
        column = np.repeat(missing, len(state.jobs))
        digests.add(state_digest(replace(state, jobs=replace(state.jobs, duration_estimate_s=column))))
    assert len(digests) == 1
