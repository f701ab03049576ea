"""`headway resize` says what another number of GPUs changes for a training script."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from controller.cli.app import app
from protos.headway.v1 import admin_pb2


class Client:
    """Begins every preemption."""

    def preempt(self, request: admin_pb2.PreemptRequest) -> admin_pb2.PreemptionRecord:
        gpus = request.gpus if request.HasField("gpus") else None
        return admin_pb2.PreemptionRecord(number=1, job_id=request.job_id, stage="asked", way="checkpoint", gpus=gpus)


@pytest.mark.parametrize(
    ("words", "said"), [(("resize", "7", "--gpus", "2"), True), (("move", "7"), False), (("preempt", "7"), False)]
)
def test_a_resize_says_that_the_batch_of_all_ranks_changes(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: bool
) -> None:
    monkeypatch.setattr("controller.cli.commands.preemption.connected", lambda *_: nullcontext(Client()))
    shown = CliRunner().invoke(app, list(words))
    assert shown.exit_code == 0, shown.output
    assert ("the batch of all ranks together changes with the GPUs" in shown.output) == said
    answer = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert answer["job_id"] == "7"
