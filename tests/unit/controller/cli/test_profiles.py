"""Output of `headway profile show`."""

from __future__ import annotations

import pytest

from controller.cli.render.profiles import show_profile
from protos.headway.v1 import admin_pb2


def test_bytes_between_nodes_are_shown_where_they_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    sizes = {"all_reduce": 5e6, "broadcast": 2e6}
    divided = admin_pb2.StepSplit(node="n1", step_s=0.3, bytes=sizes, link_bytes={"all_reduce": 1e6, "broadcast": 2e6})
    earlier = admin_pb2.StepSplit(node="n2", step_s=0.3, bytes=sizes)
    show_profile(admin_pb2.JobMeasurements(job_id="7", steps=[divided, earlier]))
    first, second = (line for line in capsys.readouterr().out.splitlines() if " 300 ms " in line)
    assert first.split("  ")[-1].strip() == "all_reduce 5 MB (1 MB between nodes), broadcast 2 MB"
    assert second.split("  ")[-1].strip() == "all_reduce 5 MB, broadcast 2 MB"
