"""The program of `headway top`: asks the controller every few seconds and keeps the screen current (Textual)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from controller.base.text import clock_time, duration
from controller.cli.client import AdminClient, CallError
from controller.cli.render.jobs import shown_facts
from controller.cli.render.terminal import pairs_of, safe_text
from controller.cli.top.screen import COLUMNS, Choice, header, rows
from protos.headway.v1 import admin_pb2

_STATES = ((), ("waiting",), ("starting", "running"), ("ineligible", "yielded"))
"""States that the key `t` chooses from, one after the other; empty: all jobs."""


@dataclass(frozen=True)
class Answer:
    """The last good answer of the controller, and the failure since then, if any."""

    status: admin_pb2.Status
    queue: admin_pb2.Queue
    time_s: float
    """When it came, seconds since the Unix epoch."""
    problem: str = ""


class Why(ModalScreen[None]):
    """The explanation of one job, over the table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "back")]
    CSS = "Why { align: center middle; } Why VerticalScroll { width: 90%; height: 80%; border: round $accent; padding: 1; }"

    def __init__(self, text: Text, facts: Table | None) -> None:
        super().__init__()
        self._text, self._facts = text, facts

    def compose(self) -> ComposeResult:
        """The sentence, and the numbers behind it."""
        with VerticalScroll():
            yield Static(self._text)
            if self._facts is not None:
                yield Static("")
                yield Static(self._facts)


class Top(App[None]):
    """State of the controller, and its jobs.

    The controller is asked in a thread, one request at a time, so that a slow one does not stop the keys. If it does not
    answer, the last answer stays on the screen, with its age, and the next request is made in time.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit"),
        Binding("m", "mine", "mine"),
        Binding("t", "states", "state"),
        Binding("s", "order", "sort"),
        Binding("slash", "search", "search", key_display="/"),
        Binding("enter", "why", "why", show=True),
    ]
    CSS = """
    #header { height: auto; padding: 0 1; }
    #choice { height: 1; padding: 0 1; background: $surface; }
    #search { display: none; }
    #search.open { display: block; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, client: AdminClient, own_user: str | None, *, every_s: float, limit: int) -> None:
        """`own_user` is whose jobs the key `m` chooses (None: it does nothing); at most `limit` jobs are shown."""
        super().__init__()
        self._client, self._own_user, self._every_s, self._limit = client, own_user, every_s, limit
        self._choice = Choice()
        self._answer: Answer | None = None

    def compose(self) -> ComposeResult:
        """Header, choice, table, search."""
        yield Static("asking the controller ...", id="header")
        yield Static("", id="choice")
        yield DataTable(id="jobs", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="job, user, name, node or reason; empty shows all", id="search")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        table = self._table
        for column in COLUMNS:
            table.add_column(column, key=column)
        table.focus()
        self.ask()
        self.set_interval(self._every_s, self.ask)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#jobs", DataTable)

    def ask(self) -> None:
        """Request the state, unless a request is under way."""
        if not any(worker.name == "ask" and worker.is_running for worker in self.workers):
            self._ask()

    @work(thread=True, name="ask", exit_on_error=True)
    def _ask(self) -> None:
        try:
            found = Answer(self._client.status(), self._client.queue(), time.time())
        except CallError as error:
            problem = str(error)
            self._show_later(lambda: self._failed(problem))
        else:
            self._show_later(lambda: self._show(found))

    def _show_later(self, show: Callable[[], None]) -> None:
        """Show it in the app's own thread, unless the program is about to end."""
        if self.is_running:
            self.call_from_thread(show)

    def _failed(self, problem: str) -> None:
        if self._answer is None:
            self.query_one("#header", Static).update(safe_text(problem, "red"))
        else:
            self._show(replace(self._answer, problem=problem))

    def _show(self, answer: Answer) -> None:
        self._answer = answer
        lines = Table.grid(padding=(0, 2))
        when = clock_time(answer.time_s)
        if answer.problem:
            age = duration(time.time() - answer.time_s)
            lines.add_row(
                safe_text("STALE", "bold red"), safe_text(f"as of {age} ago, {when}: {answer.problem}", "red")
            )
        else:
            lines.add_row(safe_text("headway", "bold"), safe_text(f"{answer.status.version}, {when}"))
        for name, value in header(answer.status):
            lines.add_row(name, value)
        self.query_one("#header", Static).update(lines)
        self._show_jobs(answer)

    def _show_jobs(self, answer: Answer) -> None:
        """Fill the table; the cursor stays on its job, if that is still shown."""
        chosen = self._choice.of_jobs(answer.queue.entries)
        table = self._table
        at, selected = table.cursor_row, self._selected()
        table.clear()
        places = {}
        for number, (job_id, cells) in enumerate(rows(chosen, self._limit, answer.time_s)):
            table.add_row(*cells, key=job_id)
            places[job_id] = number
        table.move_cursor(row=places.get(selected, at))
        sentence = self._choice.sentence(len(chosen), len(places), len(answer.queue.entries))
        self.query_one("#choice", Static).update(safe_text(sentence))

    def _selected(self) -> str:
        """Return the id of the job under the cursor; empty if there is none."""
        table = self._table
        if not table.is_valid_row_index(table.cursor_row):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _choose(self, choice: Choice) -> None:
        self._choice = choice
        if self._answer is not None:
            self._show_jobs(self._answer)

    def action_mine(self) -> None:
        """Show only the user's own jobs, or those of all."""
        self._choose(replace(self._choice, user=self._own_user if self._choice.user is None else None))

    def action_states(self) -> None:
        """Choose the next group of states."""
        groups = [frozenset(states) for states in _STATES]
        at = groups.index(self._choice.states) if self._choice.states in groups else 0
        self._choose(replace(self._choice, states=groups[(at + 1) % len(groups)]))

    def action_order(self) -> None:
        """Choose the next order."""
        self._choose(self._choice.with_next_order())

    def action_search(self) -> None:
        """Open the line for a text to search for."""
        search = self.query_one("#search", Input)
        search.add_class("open")
        search.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        self._choose(replace(self._choice, text=event.value))

    def on_input_submitted(self) -> None:
        """Return to the table; the filter stays."""
        self.query_one("#search", Input).remove_class("open")
        self._table.focus()

    def on_data_table_row_selected(self) -> None:
        """Enter, or a click on a selected row."""
        self.action_why()

    def action_why(self) -> None:
        """Explain the job under the cursor."""
        if job_id := self._selected():
            self._explain(job_id)

    @work(thread=True, name="why", exclusive=True, group="why")
    def _explain(self, job_id: str) -> None:
        try:
            found = self._client.why(job_id)
        except CallError as error:
            text, facts = safe_text(str(error), "red"), None
        else:
            text = safe_text(f"Job {found.job_id} ({found.state}): {found.sentence}")
            facts = pairs_of(shown_facts(found.facts), {})
        self._show_later(lambda: self._open(Why(text, facts)))

    def _open(self, explanation: Why) -> None:
        self.push_screen(explanation)
