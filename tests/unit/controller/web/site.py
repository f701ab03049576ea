"""A controller on an embedded Slurm with its real sockets, in a thread of its own, and the page in front of it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from controller.admin.serve import serve_admin
from controller.base.lease import Lease, write_lease
from controller.forecast.estimate import StartEstimate, Starts
from controller.profiles.racks import Racks
from controller.slurm.embedded import ClusterDescription, sbatch_request
from controller.slurm.embedded.description import NodeDescription
from controller.slurm.model.job import JobKey
from controller.state.preemption import Cause
from controller.web.app import make_app
from controller.web.run import listen
from controller.web.settings import ListenAddress, WebSettings
from controller.web.tokens import new_token, read_tokens
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.examples.slowed import known, pace
from tests.unit.controller.worlds.controller_world import ControllerWorld

T = TypeVar("T")
PROXY = "192.0.2.7"
HOSTILE = "<script>alert(1)</script>"


class Site:
    """A cluster and its page. `run` runs code of the cluster in its thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world: ControllerWorld = None  # type: ignore[assignment]
        self.loop = asyncio.new_event_loop()
        self.tokens = folder / "tokens"
        self.token, line = new_token("ann")
        self.tokens.write_text(f"# users of the page\n\n{line}\n")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine, which runs in the cluster's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def start(self, _key: JobKey) -> StartEstimate:
        """Every waiting job is expected to start in 12 min to 2 h 5 min."""
        now_s = self.world.clock.now()
        return StartEstimate(now_s + 720, now_s + 3600, now_s + 7500, held=41, known=50, stand_in="", made_s=now_s)

    def settings(self, **changes: Any) -> WebSettings:
        """Settings with a proxy and a file of tokens."""
        given = {
            "status_socket": self.folder / "status.sock", "proxy_addresses": (PROXY,), "token_file": self.tokens,
            "listen": "127.0.0.1:0", "secure_cookie": False, **changes,
        }  # fmt: skip
        return WebSettings(**given)

    def app(self, **changes: Any) -> Starlette:
        """The application, on the cluster's clock."""
        return make_app(self.settings(**changes), read_tokens(self.tokens), lambda: self.world.clock.now())

    def client(self, user: str | None = "ann", peer: str = PROXY, **changes: Any) -> TestClient:
        """A browser behind the proxy, which names that user (None: no user)."""
        headers = {} if user is None else {"X-Remote-User": user}
        app = self.app(**changes)
        return TestClient(
            app, headers=headers, client=(peer, 50_000), follow_redirects=False, raise_server_exceptions=False
        )

    @contextmanager
    def address(self, **changes: Any) -> Iterator[str]:
        """Serve the page on loopback; yield its address."""
        config = uvicorn.Config(self.app(**changes), log_config=None, lifespan="off", ws="none")
        server, listener = uvicorn.Server(config), listen(ListenAddress(host="127.0.0.1", port=0))
        serving = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listener]), self.loop)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            serving.result(30)
            listener.close()


Fill = Callable[[ControllerWorld], Coroutine[Any, Any, None]]


@contextmanager
def site(
    folder: Path,
    fill: Fill | None = None,
    description: ClusterDescription | None = None,
    within_s: float = 60.0,
    starts: Starts | None = None,
    **world: Any,
) -> Iterator[Site]:
    """A cluster with jobs of all kinds; this process's user is headway-web's. `world`: other arguments of the world."""
    found = Site(folder)
    began, end = threading.Event(), asyncio.Event()
    failed: list[BaseException] = []

    async def main() -> None:
        found.world = ControllerWorld(
            folder, **{"endpoint": FakeEndpoint(), "description": description or CLUSTER, **world}
        )
        await (fill or fill_cluster)(found.world)
        serving = serve_admin(
            found.world,
            folder,
            "",
            measurement=found.world.measurement,
            web_uid=os.getuid(),
            starts=starts or found.start,
        )
        async with serving:
            began.set()
            await end.wait()

    def work() -> None:
        asyncio.set_event_loop(found.loop)
        try:
            found.loop.run_until_complete(main())
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)
        finally:
            began.set()

    thread = threading.Thread(target=work, name="cluster")
    thread.start()
    assert began.wait(within_s)
    try:
        if failed:
            raise failed[0]
        yield found
    finally:
        with suppress(RuntimeError):
            found.loop.call_soon_threadsafe(end.set)
        thread.join(30)
        found.loop.close()


CLUSTER = ClusterDescription(nodes=(NodeDescription(names="n[1-12]"),))


async def fill_cluster(world: ControllerWorld) -> None:
    """Three racks of four nodes; two jobs slow each other down, one is hostile, one is stopped, others wait; a node is drained."""
    world.endpoint.away = True
    world.knowledge.set_topology(Racks({f"n{node}": f"rack{(node + 3) // 4}" for node in range(1, 13)}))
    world.slurm_says(PrivateData="none")
    write_lease(world.settings.lease_path, Lease(int(world.clock.now()), 30.0, ("dl",), 0, 0))
    for user, name, nodes, gpus in (
        ("ann", "bert", 2, 4), ("bob", "gpt", 2, 4), ("cem", HOSTILE, 4, 8), ("dan", "vit", 1, 2), ("ann", "resnet", 1, 1),
    ):  # fmt: skip
        world.sbatch(1e6, request=sbatch_request(gpus_per_node=gpus, nodes=nodes), user=user, name=name)
    await world.go_on(120)
    for number in range(1, 8):
        world.sbatch(
            1e6, request=sbatch_request(gpus_per_node=8, nodes=4 + number % 3), user="eve", name=f"big-{number}"
        )
    world.sbatch(gpus_per_node=2, user="ann", name="later", hold=True)
    await world.go_on(30)
    paces = pace(1, 1.68, 2), pace(2, 1.32, 1), pace(3, 1.01)
    world.know(
        known(
            *(
                replace(each, window=replace(each.window, idle_gpus=idle))
                for each, idle in zip(paces, (0, 3, 0), strict=True)
            )
        )
    )
    world.slurm.node_drain("n12", "XID 79: GPU has fallen off the bus")
    await world.go_on(2)
    assert world.last is not None
    (job,) = (each for each in world.last.observation.snapshot.jobs if each.key.job_id == "4")
    world.preemptions.begin(job, Cause.OPERATOR, "by hand, to make room for job 6", force=True)
    world.events.add("advice", "1", "should be moved: it trains 1.68 times slower than alone")
    await world.go_on(30)
    write_lease(world.settings.lease_path, Lease(int(world.clock.now()), 30.0, ("dl",), 0, 0))
