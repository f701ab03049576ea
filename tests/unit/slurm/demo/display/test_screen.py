"""The live picture, and the plain lines."""

from __future__ import annotations

import io

from rich.console import Console

from slurm.demo.display.screen import Frame, LiveScreen, PlainScreen, draw, open_screen
from slurm.demo.display.view import ClusterView, JobView, LinkView, NodeView, Stage


def frame(stage: Stage = Stage.RUNNING, elapsed_s: float = 12.0) -> Frame:
    started, ended = stage is not Stage.WAITING, stage.ended
    bert = JobView(
        "bert-a",
        "7",
        stage,
        (("n1", 4), ("n2", 4)) if started else (),
        submit_s=100.0,
        start_s=103.0 if started else None,
        end_s=109.0 if ended else None,
        why="consolidated: 8 GPUs on 2 nodes",
        state="COMPLETED" if ended else stage.name,
    )
    expected = JobView("gpt", "", Stage.EXPECTED)
    view = ClusterView(
        112.0,
        {"bert-a": bert},
        (NodeView("n1", ("bert-a",) * 4 + ("",) * 4), NodeView("n2", ("",) * 8)),
        {"n1": LinkView(150.0, 20.0), "n2": LinkView(0.0, 0.0)},
    )
    requests = {"bert-a": "-N2 --gres=gpu:4", "gpt": "-N4 --gpus-per-node=8"}
    return Frame("1 of 2", "Headway (srtf)", elapsed_s, requests, {"bert-a": bert, "gpt": expected}, view, 200.0)


def text_of(width: int, picture: Frame, *, ascii_only: bool = False) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(draw(picture, width=width, ascii_only=ascii_only))
    return console.export_text()


def test_the_picture_has_queue_nodes_and_links() -> None:
    text = text_of(120, frame())

    assert "Headway (srtf)" in text
    assert "0 waiting, 1 running, 0 done" in text
    assert "-N2 --gres=gpu:4" in text
    assert "n[1-2]:4" in text
    assert "consolidated" in text
    assert "■ ■ ■ ■ □ □ □ □" in text
    assert "150" in text


def test_wait_and_run_look_different() -> None:
    row = next(line for line in text_of(120, frame()).splitlines() if line.startswith("bert-a"))

    assert row.split()[4:8] == ["3", "s", "9", "s"]


def test_a_narrow_terminal_loses_the_reason_and_nothing_else() -> None:
    text = text_of(80, frame())

    assert "consolidated" not in text
    assert "n[1-2]:4" in text
    assert "--gpus-per-node=8" in text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert text_of(100, frame(), ascii_only=True).isascii()


def test_links_that_cannot_be_measured_are_not_shown() -> None:
    whole = frame()
    picture = Frame(
        whole.title, whole.scheduler, whole.elapsed_s, whole.requests, whole.jobs, whole.view, rate_mbps=None
    )

    assert "link" not in text_of(120, picture)


def plain(*frames: Frame) -> str:
    output = io.StringIO()
    screen = PlainScreen(Console(file=output, width=140))
    for picture in frames:
        screen.show(picture)
    return output.getvalue()


def test_plain_lines_tell_each_change_once() -> None:
    text = plain(frame(Stage.WAITING, 1), frame(Stage.RUNNING, 2), frame(Stage.RUNNING, 3), frame(Stage.DONE, 4))

    assert text.splitlines() == [
        "   1 s  bert-a     submitted as job 7: -N2 --gres=gpu:4",
        "   2 s  bert-a     runs on n[1-2]:4 (consolidated: 8 GPUs on 2 nodes)",
        "   4 s  bert-a     done after 9 s",
    ]


def test_plain_lines_tell_the_links_now_and_then() -> None:
    text = plain(*(frame(elapsed_s=float(second)) for second in range(25)))

    assert text.count("Mbit/s sent: n1 150  n2 0") == 2


def test_a_file_gets_lines_and_a_terminal_a_picture() -> None:
    assert isinstance(open_screen(Console(file=io.StringIO())), PlainScreen)
    assert isinstance(
        open_screen(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})), LiveScreen
    )


def test_the_live_picture_vanishes_at_the_end() -> None:
    output = io.StringIO()
    screen = LiveScreen(Console(file=output, force_terminal=True, width=120, height=40, _environ={"TERM": "xterm"}))

    screen.show(frame())
    screen.show(frame(Stage.DONE))
    screen.close()
    screen.close()

    assert "bert-a" in output.getvalue()
    assert "\x1b[?25h" in output.getvalue(), "the cursor is shown again"
