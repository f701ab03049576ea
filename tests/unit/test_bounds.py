"""A bound is stated beside everything that grows in the long-running processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.growing_containers import grown_attributes, sites

ROOT = Path(__file__).parents[2]
LONG_RUNNING = ("controller", "nodeagent", "policies", "headway_job/src/headway_job")
EMULATED = "controller/slurm/embedded"


def modules(package: str) -> Iterator[tuple[str, str]]:
    """Yield path and source of each module of the package, without the emulated Slurm."""
    for path in sorted((ROOT / package).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not name.startswith(EMULATED):
            yield name, path.read_text()


@pytest.mark.parametrize("package", LONG_RUNNING)
def test_the_bound_of_what_grows_stands_beside_it(package: str) -> None:
    found = dict(modules(package))
    grown = frozenset[str]().union(*map(grown_attributes, found.values()))
    checked = [(path, site) for path, source in found.items() for site in sites(source, grown)]
    assert checked
    missing = [f"{path}:{site.line} {site.name}" for path, site in checked if not site.bounded]
    assert missing == [], (
        'state each bound ("Bound: ...") in the docstring below, a comment above or the class\'s docstring'
    )


def found(source: str, *grown: str) -> dict[str, bool]:
    """Return the names of what may grow, and whether its bound is stated."""
    return {site.name: site.bounded for site in sites(dedent(source), grown)}


def test_attributes_that_begin_empty_or_are_added_to_need_a_bound() -> None:
    source = """
    class Table:
        newest: deque[int] = deque(maxlen=5)
        shared: list[int] = field(default_factory=list)
        constant: dict[str, int] = {}

        def __init__(self):
            self._ids: set[str] = set()
            self._names = dict[str, int]()
            \"\"\"Bound: the nodes.\"\"\"
            # Bound: the jobs.
            self._jobs = defaultdict(list)
            self._given = [1, 2]
            self._extended = {1: 2}
            self.listeners = [print]
            self._view: Mapping[str, int] = {}
            self._newest, self._zero = deque(maxlen=5), 0
            self._metric = Counter("headway_jobs", "Jobs")
            self._later: dict[int, int] | None = None
            \"\"\"Bound: the GPUs.\"\"\"

        def add(self, other):
            self._extended[3] = 4
            self._metric.update()
            self._later = {}
            self._later[1] = 2
            self.shared.append(other)
    """
    wanted = {"shared": False, "_ids": False, "_names": True, "_jobs": True, "_extended": False, "_later": True}
    assert found(source) == {f"Table.{name}": bounded for name, bounded in wanted.items()}
    assert found(source, "listeners", "_given")["Table.listeners"] is False
    assert "Table._given" not in found(source, "_given"), "private names of other modules are other attributes"


def test_a_class_may_state_the_bound_of_all_its_attributes() -> None:
    source = '''
    class Turn:
        """One cycle. Bound: lives for one cycle."""

        def __init__(self):
            self.starts = []
    '''
    assert found(source) == {"Turn.starts": True}


def test_caches_files_and_names_of_modules_need_a_bound() -> None:
    source = """
    SEEN = {}
    NAMES = {"a": 1}

    @cache
    def parsed(text):
        SEEN[text] = 1

    @lru_cache(maxsize=None)
    def read(text):
        # Bound: one line for each start.
        open(text, "a").write("")

    @lru_cache(maxsize=10)
    def kept(text):
        NAMES = {}
        NAMES[text] = os.open(text, os.O_APPEND)

    @cache
    def library():
        return 1
    """
    wanted = {"SEEN": False, "parsed()": False, "read()": False, "read(): a file": True, "kept(): a file": False}
    assert found(source) == wanted


def test_containers_of_endless_loops_need_a_bound() -> None:
    source = """
    async def serve(queue):
        seen, tasks = set(), []
        calls = []
        while True:
            batch = []
            batch.append(await queue.get())
            calls.append(batch)
            tasks.append(batch)
            sum(seen)

    def descend(node):
        found = []
        while node:
            found.append(node)
    """
    assert found(source) == {"serve(): calls": False, "serve(): tasks": False}


def test_tables_need_a_bound() -> None:
    source = '''
    SCHEMA = """
    -- Bound: the jobs.
    CREATE TABLE IF NOT EXISTS job (id);
    CREATE INDEX x ON job (id);
    CREATE TABLE run (id);
    """
    '''
    assert found(source) == {"table job": True, "table run": False}
