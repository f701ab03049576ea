"""The pages over a real admin socket: their contents for each user, and the answers to hostile requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from headway_client import NodeUse
from starlette.testclient import TestClient

from controller.admin.metrics.metered_client import MeteredClient
from controller.web import rendering
from controller.web.pages import contention, nodes, overview
from tests.unit.controller.web.site import HOSTILE, Site

PAGES = (
    "/",
    "/queue",
    "/jobs/1",
    "/jobs/4",
    "/jobs/6",
    "/nodes",
    "/idle",
    "/waits",
    "/usage",
    "/preemptions",
    "/contention",
)


def page(client: TestClient, path: str, status: int = 200) -> str:
    """Return the HTML of a page, in one line."""
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer.text
    return re.sub(r"\s+", " ", answer.text)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_markup_of_users_or_anything_from_elsewhere(cluster: Site, path: str) -> None:
    with cluster.client() as client:
        answer = client.get(path)
        html = answer.text

    assert answer.status_code == 200
    assert HOSTILE not in html
    assert re.findall(r"<script(?! src=\"/static/refresh\.js\" defer>)", html) == []
    assert re.findall(r"(?:src|href|action)=\"(?!/|#)", html) == []
    assert not re.search(r"\son\w+=|\sstyle=", html)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")


def test_a_hostile_name_is_shown_as_text(cluster: Site) -> None:
    with cluster.client() as client:
        for path in ("/queue?user=cem", "/jobs/3", "/nodes"):
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page(client, path)
        assert "&lt;b&gt;" in page(client, "/queue?user=<b>")


def test_the_overview_shows_the_cluster_at_a_glance(cluster: Site) -> None:
    with cluster.client() as client:
        html = page(client, "/")

    assert "<strong>6</strong> running" in html
    assert "<strong>1</strong> of 12 nodes out of service" in html
    assert re.search(r"<th scope=\"row\">dl</th><td class=\"n\"><strong>\d+</strong>", html)
    assert "fallback fifo decides" in html
    assert "nobody listens" in html
    assert "for GPUs, in the policy&#39;s order" in html
    assert "Last decision</dt><dd>" in html


def test_a_part_that_cannot_be_made_leaves_the_rest_of_the_page(cluster: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise ArithmeticError("a number that is none")

    monkeypatch.setattr(overview, "health", broken)
    monkeypatch.setattr(rendering, "duration", broken)
    shown = page(cluster.client(), "/")
    assert "This page lacks what could not be made, because of a bug of headway-web: health." in shown
    assert "Free GPUs by partition" in shown
    assert "up for \u2013" in shown, "a value that leads to an error is shown as unknown"


def test_a_node_that_cannot_be_shown_hides_no_other(cluster: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = nodes._shares

    def broken(node: NodeUse, *more: Any) -> Any:
        if node.name == "n2":
            raise ArithmeticError("a number that is none")
        return shares(node, *more)

    whole = page(cluster.client(), "/nodes")
    monkeypatch.setattr(nodes, "_shares", broken)
    shown = page(cluster.client(), "/nodes")
    assert whole.count(">n1<") == shown.count(">n1<") > 0
    assert whole.count(">n2<") > shown.count(">n2<")


def test_the_queue_is_filtered_by_its_address(cluster: Site) -> None:
    with cluster.client() as client:
        assert page(client, "/queue").count('href="/jobs/') == 13
        mine = page(client, "/queue?user=ann&state=running")
        assert re.findall(r'href="/jobs/(\d+)"', mine) == ["1", "5"]
        assert "2 of 13 jobs" in mine
        held = page(client, "/queue?state=ineligible")
        assert re.findall(r'href="/jobs/(\d+)"', held) == ["13"]


def test_waiting_jobs_have_an_estimate_of_their_start(cluster: Site) -> None:
    with cluster.client() as client:
        waiting = page(client, "/queue?state=waiting")
        job = re.findall(r'href="/jobs/(\d+)"', waiting)[0]
        assert waiting.count("Starts in 12 min - 2 h 5 min.") == waiting.count('href="/jobs/') > 0
        assert "Starts: of such estimates 8 in 10 held." in waiting
        assert not re.search(r"Starts in|of such estimates", page(client, "/queue?state=running"))
        assert "It is expected to start between" in page(client, f"/jobs/{job}")


def test_the_page_of_a_job_has_reason_timeline_and_events(cluster: Site) -> None:
    with cluster.client() as client:
        runs = page(client, "/jobs/1")
        assert "Runs on n1:4,n2:4 since" in runs
        assert '<svg class="timeline"' in runs
        assert "should be moved: it trains 1.68 times slower than alone" in runs
        assert "8 GPUs on each of 6 nodes" in page(client, "/jobs/7")
        found = client.get("/jobs?id=%204%20")
        assert (found.status_code, found.headers["location"]) == (303, "/jobs/4")
        stopped = page(client, "/jobs/4")
        assert "by hand, to make room for job 6" in stopped
        assert "waited</span> and ran earlier" in stopped  # without accounting nobody lists its first run


def test_a_narrow_queue_has_short_reasons_and_the_page_of_the_job_the_whole_one(cluster: Site) -> None:
    with cluster.client() as client:
        queue, job = page(client, "/queue?state=waiting"), page(client, "/jobs/7")
    assert '<span class="narrow">For GPUs, in the policy&#39;s order</span><span class="wide">Needs 8 GPUs' in queue
    assert "Needs 8 GPUs" in job


def test_commands_are_marked_and_dates_and_names_of_nodes_do_not_break(cluster: Site) -> None:
    with cluster.client() as client:
        queue, job = page(client, "/queue"), page(client, "/jobs/1")
    assert "<code>scontrol release</code> gives it back" in queue
    assert "`" not in queue
    assert re.search(r'<td class="t"><span class="whole">\d{4}-\d\d-\d\d</span> \d\d:\d\d:\d\d</td>', job)
    assert '<td class="placement">n1:4,<wbr>n2:4</td>' in job
    assert re.search(r"as of <time>.+</time> [A-Z+-]\S+</footer>", job)


def test_nodes_idle_waits_preemptions_and_pairs(cluster: Site) -> None:
    with cluster.client() as client:
        nodes = page(client, "/nodes")
        assert re.findall(r"<h2>(rack\d)", nodes) == ["rack1", "rack2", "rack3"]
        assert nodes.count('class="node"') == 12
        assert "XID 79: GPU has fallen off the bus" in nodes
        assert 'class="share c1 w4" href="/jobs/1"' in nodes
        idle = page(client, "/idle")
        assert re.search(r'<a href="/jobs/2">2</a></td><td>bob</td>.*?<strong>3</strong>', idle)
        assert "Agents measure 3 running jobs" in idle
        waits = page(client, "/waits")
        assert "1 GPU</th>" in waits
        assert "17 to 32 GPUs</th>" in waits
        assert "Jobs that ended in the last 7 days" in waits
        preempted = page(client, "/preemptions")
        assert "operator" in preempted
        assert "Of 20 stops by threshold and policies within an hour, <strong>20</strong> are left" in preempted
        assert "by hand, to make room for job 6" in preempted
        pairs = page(client, "/contention")
        assert re.search(r'/jobs/1">1</a>.*?1\.68.*?/jobs/2">2</a>.*?1\.32', pairs)


def test_usage_says_who_got_what(cluster: Site) -> None:
    with cluster.client() as client:
        html = page(client, "/usage")
    users = re.findall(r'<th scope="row"><a href="/queue\?user=\w+">(\w+)</a></th><td class="n">([\d.]+)</td>', html)
    assert {user for user, _ in users} == {"ann", "bob", "cem", "dan", "eve"}
    hours = [float(value) for _, value in users]
    assert hours == sorted(hours, reverse=True)
    assert hours[0] > 0
    assert 'aria-label="Share of cem of all GPU hours"' in html
    assert "Fair share" not in html  # Slurm's priority uses none here


def test_the_overview_shows_the_calls_to_slurmctld(cluster: Site) -> None:
    metered = MeteredClient(cluster.world.client, cluster.world.clock)
    cluster.run(metered.snapshot())
    before, cluster.world.client = cluster.world.client, metered
    try:
        with cluster.client() as client:
            html = page(client, "/")
    finally:
        cluster.world.client = before
    assert "Load on slurmctld" in html
    assert re.search(r'<th scope="row">snapshot</th><td class="n">[\d.]+</td><td class="n">[\d.]+ ms</td>', html)


# --- who sees what


@pytest.mark.parametrize("private", ["jobs", "usage"])
def test_where_usage_is_private_each_user_sees_their_own(cluster: Site, private: str) -> None:
    cluster.world.slurm_says(PrivateData=private)
    try:
        with cluster.client("ann") as client:
            html = page(client, "/usage")
        assert re.findall(r'href="/queue\?user=(\w+)"', html) == ["ann"]
        assert "you see your own" in html
        assert "Share of" not in html
    finally:
        cluster.world.slurm_says(PrivateData="none")


def test_where_jobs_are_private_each_user_sees_their_own(cluster: Site) -> None:
    cluster.world.slurm_says(PrivateData="jobs")
    try:
        with cluster.client("ann") as client:
            assert re.findall(r'href="/jobs/(\d+)"', page(client, "/queue")) == ["1", "5", "13"]
            assert "Runs on" in page(client, "/jobs/1")
            assert "Jobs are private here" in page(client, "/jobs/2", 403)
            assert "should be moved: it trains" in page(client, "/jobs/1")
            nodes = page(client, "/nodes")
            assert set(re.findall(r'href="/jobs/(\d+)"', nodes)) == {"1", "5"}
            assert "share other" in nodes
            assert "/jobs/2" not in page(client, "/contention")
            assert "No job has been preempted" in page(client, "/preemptions")
    finally:
        cluster.world.slurm_says(PrivateData="none")


def test_only_the_proxy_names_users(cluster: Site) -> None:
    with cluster.client(peer="127.0.0.1") as client:  # a user of this machine
        assert "You are not signed in" in page(client, "/", 401)
    with cluster.client(peer="198.51.100.1") as client:
        assert "Requests from 198.51.100.1 are not answered" in page(client, "/", 403)
        assert client.post("/sign-in", data={"token": cluster.token}).status_code == 403
    with cluster.client(user=None) as client:
        assert "You are not signed in" in page(client, "/queue", 401)
    with cluster.client(user=None, token_file=None) as client:
        assert "address of your site&#39;s proxy" in page(client, "/queue", 401)


@pytest.mark.parametrize("name", ["", "a b", "<script>", "x" * 300, "-ann"])
def test_a_name_that_no_user_has_is_refused(cluster: Site, name: str) -> None:
    with cluster.client(user=name) as client:
        assert "names no user that Slurm could know" in page(client, "/", 403)


def test_a_suffix_is_removed_and_required(cluster: Site) -> None:
    with cluster.client("ann@example.org", user_suffix="@example.org") as client:
        assert '<div class="user">ann ' in page(client, "/")
    with cluster.client("ann@example.com", user_suffix="@example.org") as client:
        page(client, "/", 403)


def test_a_token_signs_in_until_it_is_forgotten(cluster: Site) -> None:
    with cluster.client(user=None, peer="127.0.0.1") as client:
        assert 'name="token" type="password"' in page(client, "/", 401)
        refused = client.post("/sign-in", data={"token": "no such"})
        assert (refused.status_code, "There is no such token" in refused.text) == (401, True)
        taken = client.post("/sign-in", data={"token": cluster.token})
        assert (taken.status_code, taken.headers["location"]) == (303, "/")
        cookie = taken.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
        assert '<div class="user">ann ' in page(client, "/")
        client.post("/sign-out")
        page(client, "/", 401)
        bearer = {"Authorization": f"Bearer {cluster.token}"}
        assert client.get("/queue", headers=bearer).status_code == 200


# --- hostile and unlucky requests


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/jobs/99", 404, "neither Slurm nor Headway&#39;s journal knows job 99"),
        ("/jobs/abc", 400, "is not the id of a job"),
        ("/jobs/1;2", 400, "is not the id of a job"),
        ("/jobs/%3Cscript%3E", 400, "&lt;script&gt;"),
        ("/jobs/" + "9" * 500, 400, "is not the id of a job"),
        ("/jobs?id=", 400, "No id was given"),
        ("/jobs", 400, "No id was given"),
        ("/queue?page=0", 400, "is no number of a page; give 1 or more"),
        ("/queue?page=1e9", 400, "is no number of a page"),
        ("/queue?page=%D9%A3", 400, "is no number of a page"),
        ("/queue?state=asleep", 400, "give one of waiting, starting"),
        ("/queue?user=" + "u" * 300, 400, "give at most 256"),
        ("/queue?user=" + "u" * 3000, 414, "longer than 2000 characters"),
        ("/nowhere", 404, "There is no page at /nowhere"),
        ("/static/../app.py", 404, "There is no page"),
        ("/static/nothing.css", 404, "There is no page"),
    ],
)  # fmt: skip
def test_a_bad_request_gets_a_page_that_says_what_is_wrong(cluster: Site, path: str, status: int, text: str) -> None:
    with cluster.client() as client:
        html = page(client, path, status)
    assert text.lower() in html.lower()
    assert re.search(r"<h1>[^<]+</h1> (<p>.+?</p> )+", html)
    assert "`" not in html


def test_a_page_beyond_the_last_is_the_last(cluster: Site) -> None:
    with cluster.client() as client:
        assert page(client, "/queue?page=999999").count('href="/jobs/') == 13


def test_other_methods_and_large_forms_are_refused(cluster: Site) -> None:
    with cluster.client() as client:
        assert client.post("/queue").status_code == 405
        assert client.request("DELETE", "/jobs/1").status_code == 405
        assert client.post("/sign-in", content=b"token=" + b"x" * 10_000).status_code == 413
        assert client.post("/sign-in", content=b"\xff" * 10).status_code == 400
        assert client.get("/healthz").text == "ok\n"
        assert client.get("/static/style.css").headers["content-type"].startswith("text/css")


def test_without_a_controller_the_page_says_so(cluster: Site) -> None:
    with cluster.client(status_socket=Path("/nowhere/status.sock")) as client:
        html = page(client, "/", 503)
        assert "<h1>The controller does not answer.</h1>" in html
        assert "No controller answers at /nowhere/status.sock" in html
        assert "<code>headway doctor</code>" in html
        assert html.count("Jobs are not affected") == 1


def test_below_another_path_all_links_begin_with_it(cluster: Site) -> None:
    with cluster.client(base_path="/headway") as client:
        html = page(client, "/queue")
        assert re.findall(r"(?:src|href|action)=\"(?!/headway/|#)", html) == []
        assert client.get("/jobs?id=4").headers["location"] == "/headway/jobs/4"


def test_of_many_pairs_those_that_are_slowed_down_most_are_shown(
    cluster: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = contention.pairs
    monkeypatch.setattr(contention, "pairs", lambda queue: found(queue) * 300)
    with cluster.client() as client:
        html = page(client, "/contention")

    assert html.count('/jobs/1">1</a>') == 200
    assert "The 200 pairs that are slowed down most, of 300." in html
