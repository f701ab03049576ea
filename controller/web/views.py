"""The pages, each from calls of the controller for the user who looks at it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from headway_client import Explanation, HeadwayError, NotFoundError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from controller.base.apart import apart
from controller.base.text import duration
from controller.web.page_error import PageError, from_controller
from controller.web.pages import contention, job, nodes, overview, preemptions, queue, usage, waits
from controller.web.rendering import Renderer
from controller.web.source import Source

T = TypeVar("T")

_JOB_ID = re.compile(r"[0-9]{1,18}(_[0-9]{1,18})?")


class Views:
    """The pages. Each takes the request and the user, and raises PageError where it cannot be shown."""

    def __init__(self, source: Source, renderer: Renderer, base_path: str) -> None:
        self._source = source
        self._renderer = renderer
        self._base_path = base_path

    async def overview(self, request: Request, user: str) -> Response:
        """Show the cluster at a glance."""
        status = await _or_page(self._source.status(user))
        now_s = self._renderer.now()
        waiting, hidden = [], ""
        try:
            answer = await self._source.queue(user)
            waiting = await _part(request, "pending jobs", partial(overview.pending_by_reason, answer))
        except HeadwayError as error:
            hidden = str(error)
        health = await _part(
            request, "health", lambda: overview.health(status, now_s, duration(now_s - status.snapshot_time_s))
        )
        uses = await _part(request, "partitions", partial(overview.partition_uses, status))
        return await self._renderer.page(
            request, "overview.html", user, found=status, uses=uses, waiting=waiting, hidden=hidden,
            error=overview.other_error(status), health=health,
        )  # fmt: skip

    async def queue(self, request: Request, user: str) -> Response:
        """Show the queue, with the filter in the address."""
        try:
            wanted = queue.parse_filter(request.query_params)
        except ValueError as error:
            raise PageError(
                400, f"The filter is not understood: {error}.", "Correct it, or begin with the whole queue."
            ) from error
        answer = await _or_page(self._source.queue(user))
        found = await asyncio.to_thread(queue.queue_page, answer, wanted)
        waiting = await _part(request, "pending jobs", partial(overview.pending_by_reason, answer))
        return await self._renderer.page(
            request, "queue.html", user, found=found, wanted=wanted, states=queue.STATES, waiting=waiting
        )

    async def find_job(self, request: Request, _user: str) -> Response:
        """Go to the page of the job that was searched for."""
        return RedirectResponse(
            f"{self._base_path}/jobs/{_checked_id(request.query_params.get('id', '').strip())}", 303
        )

    async def job(self, request: Request, user: str) -> Response:
        """Show one job: why it waits or runs, what became of it, and its events."""
        job_id = _checked_id(request.path_params["job_id"])
        why = await _or_page(self._source.why(user, job_id))
        notices: list[str] = []
        report, events = None, []
        if why.state != "array":
            try:
                report = await self._source.report(user, job_id)
            except HeadwayError as error:
                notices += [] if isinstance(error, NotFoundError) else [f"There is no report: {error}"]
        try:
            events = await self._source.events(user, job_id)
        except HeadwayError as error:
            notices.append(f"There are no events: {error}")
        now_s = self._renderer.now()
        spans = [] if report is None else await _part(request, "timeline", partial(job.timeline, report, now_s))
        facts = await _part(request, "facts", lambda: [job.facts(why)] if isinstance(why, Explanation) else [])
        times, texts = facts[0] if facts else ([], [])
        return await self._renderer.page(
            request, "job.html", user, why=why, report=report, events=events, notices=notices, spans=spans, times=times,
            facts=texts, width=job.WIDTH,
        )  # fmt: skip

    async def nodes(self, request: Request, user: str) -> Response:
        """Show the nodes by rack, and those out of service."""
        status, answer = await _or_page(self._source.status(user)), await _or_page(self._source.queue(user))
        racks = await _part(request, "racks", partial(nodes.racks, status, answer))
        return await self._renderer.page(
            request, "nodes.html", user, racks=racks, out=nodes.out_of_service(status), silent=status.agents.silent
        )

    async def idle(self, request: Request, user: str) -> Response:
        """Show jobs whose GPUs are idle."""
        answer = await _or_page(self._source.queue(user))
        return await self._renderer.page(
            request, "idle.html", user, jobs=contention.idle(answer), measured=contention.measured(answer)
        )

    async def waits(self, request: Request, user: str) -> Response:
        """Show waits by size."""
        answer, past = await _or_page(self._source.queue(user)), await _or_page(self._source.usage(user))
        rows = await _part(request, "waits", partial(waits.wait_rows, answer, past.waits))
        return await self._renderer.page(request, "waits.html", user, rows=rows, usage=past)

    async def usage(self, request: Request, user: str) -> Response:
        """Show the GPU time of users."""
        status, answer = await _or_page(self._source.status(user)), await _or_page(self._source.usage(user))
        shares = any(each.fair_share is not None for each in answer.users)
        rows = await _part(request, "users", partial(usage.rows, answer, status))
        return await self._renderer.page(
            request,
            "usage.html",
            user,
            usage=answer,
            rows=rows,
            all_users=answer.all_users,
            shares=shares,
        )

    async def preemptions(self, request: Request, user: str) -> Response:
        """Show preemptions and their cost."""
        status, answer = await _or_page(self._source.status(user)), await _or_page(self._source.preemptions(user))
        rows = await _part(request, "preemptions", partial(preemptions.rows, answer))
        outcomes = await _part(request, "outcomes", partial(preemptions.outcomes, answer))
        return await self._renderer.page(
            request, "preemptions.html", user, found=status, rows=rows, outcomes=outcomes, most=preemptions.SHOWN
        )

    async def contention(self, request: Request, user: str) -> Response:
        """Show pairs of jobs that slow each other down, and the moves that are advised."""
        status, answer = await _or_page(self._source.status(user)), await _or_page(self._source.queue(user))
        pairs = await _part(request, "pairs", partial(contention.pairs, answer))
        return await self._renderer.page(
            request, "contention.html", user, pairs=pairs[: contention.SHOWN], number=len(pairs), advice=status.advice,
            measured=contention.measured(answer),
        )  # fmt: skip


def _checked_id(text: str) -> str:
    """Return the id of a job. Raises PageError for any other text."""
    if not _JOB_ID.fullmatch(text):
        shown = f"{text[:40]!r} is not the id of a job" if text else "No id was given"
        raise PageError(400, f"{shown}.", "Give Slurm's id, such as 123, or 123_4 for a task of an array.")
    return text


async def _part(request: Request, name: str, make: Callable[[], list[T]]) -> list[T]:
    """Return the rows of a part of a page, made in a thread. After an unexpected error the page is shown without, and says so."""
    with apart("parts of web pages", f"{request.url.path}: {name}"):
        return await asyncio.to_thread(make)
    request.state.missing = [*getattr(request.state, "missing", ()), name]
    return []


async def _or_page(call: Awaitable[T]) -> T:
    """Return the answer. Raises PageError for an error of the controller's client."""
    try:
        return await call
    except HeadwayError as error:
        raise from_controller(error) from error
