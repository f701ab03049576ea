"""Secrets do not appear in messages."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from headway_job.checkpoints.stores import io_deadline
from headway_job.checkpoints.stores.io_deadline import CallProgress, IoDeadline, StoreTimeout
from headway_job.checkpoints.stores.redact import redact_error, redact_url

from tests.unit.headway_job.checkpoints.stores import looks


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/run/", "s3://bucket/run"),
        ("sftp://me:pass%40word@host:22/a", "sftp://host:22/a"),
        ("webhdfs://me:pass/w@rd@host:22/a", "webhdfs://host:22/a"),
        ("s3://bucket/run@2", "s3://bucket/run@2"),
        ("https://account.blob/x?sv=1&sig=abcdef", "https://account.blob/x"),
        ("simplecache::s3://KEY:SECRET@bucket/a", "simplecache::s3://bucket/a"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_a_password_with_a_slash_is_hidden() -> None:
    url = "webhdfs://me:hunter/22@host/x"

    assert "hunter" not in redact_error(OSError(f"no route to {url}"), url)
    assert "hunter" not in redact_error(OSError("hunter/22 is refused"), url)


@pytest.mark.parametrize(
    "text",
    [
        "no route to webhdfs://me:hunter22@host/x",
        "Max retries exceeded with url: /webhdfs/v1/a?delegation=hunter22&op=OPEN",
        "GET https://b.s3/x?X-Amz-Credential=hunter22&X-Amz-Signature=hunter22&X-Amz-Date=1",
        "GET https://b.s3/x?X-Amz-Security-Token=hunter22",
        "AWSAccessKeyId=hunter22",
        "{'Authorization': 'Bearer hunter22'}",
        "aws_secret_access_key: hunter22",
        '{"password": "hunter22", "host": "b"}',
        "it said hunter22 again",
        "it said hunter%32%32 again",
    ],
)
def test_errors_are_shown_without_secrets(text: str) -> None:
    assert "hunter" not in redact_error(OSError(text), "sftp://me:hunter%32%32@host/a?key=zzz")
    assert len(redact_error(OSError(text), "")) > 5


def test_an_error_without_secrets_is_unchanged() -> None:
    assert redact_error(OSError(28, "No space left on device"), "s3://a/b") == "[Errno 28] No space left on device"
    assert redact_error(TimeoutError(), "s3://a/b") == "TimeoutError"


def test_calls_with_progress_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    time = looks.install(monkeypatch)

    def slow(progress: CallProgress) -> str:
        for _ in range(5):
            time.take(looks.LOOKS - 2)
            progress.made()
        return "done"

    assert IoDeadline(2.0).run(slow) == "done"


def test_time_in_which_this_process_did_not_run_is_no_silence_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped, or whose machine was suspended, goes on long after the wait that it was in should have ended."""
    resumed = threading.Event()

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if resumed.is_set():
                return super().wait(60)
            time.sleep(0.3)
            resumed.set()
            return False

    monkeypatch.setattr(io_deadline, "threading", SimpleNamespace(Event=Stopped, Thread=threading.Thread))
    assert IoDeadline(0.2).run(lambda _: resumed.wait(60) and "answered") == "answered"


def test_silent_calls_are_abandoned() -> None:
    deadline = IoDeadline(0.1)
    end = threading.Event()

    def silent(progress: CallProgress) -> str:
        end.wait()
        progress.made()
        return "too late"

    for _ in range(4):
        with pytest.raises(StoreTimeout, match=r"no answer for 0\.1 s"):
            deadline.run(silent)
    with pytest.raises(StoreTimeout, match="4 earlier calls have not been answered"):
        deadline.run(lambda _: "at once")
    end.set()
    for thread in list(deadline._abandoned):
        thread.join(60)
    deadline._most_s = 60.0
    assert deadline.run(lambda _: "at once") == "at once"


def test_what_a_call_raises_is_passed_on() -> None:
    def failing(_: CallProgress) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        IoDeadline(60).run(failing)
