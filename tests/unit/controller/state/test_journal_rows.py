"""Rows of which a byte was damaged are refused, rather than believed."""

from __future__ import annotations

import pytest

from controller.state.journal_rows import RowError, decode_request, encode
from tests.unit.controller.examples.build import request


@pytest.mark.parametrize("count", ["gpus_per_node", "gpus_per_job", "gpus_per_task"])
def test_a_request_whose_number_of_gpus_has_lost_its_name_is_refused(count: str) -> None:
    text = encode(request(**{"gpus_per_node": None, count: 3}))
    assert getattr(decode_request(text), count) == 3
    with pytest.raises(RowError, match="no GPU"):
        decode_request(text.replace(count, f"{count[:-1]}#"))
