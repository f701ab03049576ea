"""What lets somebody in is not told."""

from __future__ import annotations

import threading
import time

import pytest
from headway_job.checkpoints.stores.io_deadline import Heard, Patience, Silent
from headway_job.checkpoints.stores.redact import address, told


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
def test_an_address_is_shown_without_who_may_use_it(url: str, shown: str) -> None:
    assert address(url) == shown


def test_a_password_with_a_slash_is_not_told() -> None:
    url = "webhdfs://me:hunter/22@host/x"

    assert "hunter" not in told(OSError(f"no route to {url}"), url)
    assert "hunter" not in told(OSError("hunter/22 is refused"), url)


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
def test_errors_are_told_without_secrets(text: str) -> None:
    assert "hunter" not in told(OSError(text), "sftp://me:hunter%32%32@host/a?key=zzz")
    assert len(told(OSError(text), "")) > 5


def test_an_error_is_told_as_it_is_otherwise() -> None:
    assert told(OSError(28, "No space left on device"), "s3://a/b") == "[Errno 28] No space left on device"
    assert told(TimeoutError(), "s3://a/b") == "TimeoutError"


def test_who_is_heard_of_is_waited_for_and_who_is_silent_is_not() -> None:
    patience = Patience(0.1)
    end = threading.Event()

    def slow(heard: Heard) -> str:
        for _ in range(25):
            time.sleep(0.1)
            heard.now()
        return "done"

    def silent(heard: Heard) -> str:
        end.wait()
        heard.now()
        return "too late"

    assert Patience(2.0).wait_for(slow) == "done"
    for _ in range(4):
        with pytest.raises(Silent, match=r"no answer for 0\.1 s"):
            patience.wait_for(silent)
    with pytest.raises(Silent, match="4 earlier calls have not been answered"):
        patience.wait_for(lambda _: "at once")
    end.set()
    for thread in list(patience._left):
        thread.join(60)
    patience._most_s = 60.0
    assert patience.wait_for(lambda _: "at once") == "at once"


def test_what_a_call_raises_is_passed_on() -> None:
    def failing(_: Heard) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Patience(60).wait_for(failing)
