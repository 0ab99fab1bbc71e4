"""`malleable top`: the rows of a reading, and the keys on a screen without a terminal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Callable

import pytest

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_node,
    make_nodes,
    make_snapshot,
    plan_start,
)
from slurm_hooks import cli
from slurm_hooks.errors import RetryLater
from slurm_hooks.model import FragmentState, NodeState, Off, Snapshot
from slurm_hooks.model.moments import shown
from slurm_hooks.report.top.board import board_of, job_lines
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.tick.reconcile import rehearse
from slurm_hooks.tick.report import TickReport

textual = pytest.importorskip("textual")
from slurm_hooks.report.top.app import Explanation, Top  # noqa: E402

RUNNING = make_fragment(0, FragmentState.RUNNING, ["n1"], end=after(125))
LATER = make_fragment(0, FragmentState.RUNNING, ["n2"], job_id=8, end=after(500))


def machine() -> Snapshot:
    """Two jobs of two users on six nodes. Three nodes are idle, and a job claims a node of them."""
    busy = (make_node("n1", NodeState.BUSY), make_node("n2", NodeState.BUSY))
    return make_snapshot(
        make_job(RUNNING, make_fragment(1), user="ann"),
        make_job(LATER, job_id=8, user="b[red]ob"),
        nodes=(*busy, *make_nodes(6)[2:5], make_node("n6", NodeState.DOWN)),
        planned=(plan_start(["n3"], 300),),
    )


def look(seen: Snapshot) -> TickReport:
    return rehearse(seen, Settings(mode=Mode("on")))


@pytest.mark.parametrize("name", ["off", "no_growth"])
def test_a_switch_that_is_set_is_shown_with_its_reason(name: str) -> None:
    assert len(board_of(look(machine())).summary) == 3
    seen = replace(machine(), **{name: Off(after(-600), "fire")})
    *_, line = board_of(look(seen)).summary
    assert line.endswith("(fire)")
    assert shown(after(-600)) in line


def test_jobs_that_are_over_are_left_out_as_in_status() -> None:
    ended = make_job(make_fragment(0, FragmentState.DONE, job_id=3), job_id=3)
    seen = machine()
    board = board_of(look(replace(seen, jobs=(ended, *seen.jobs))))
    assert [row[0] for row in board.jobs] == ["7", "8"]
    assert board.summary[1].startswith("2 used by 2 malleable jobs")


def test_a_hole_that_ends_on_another_day_has_a_date() -> None:
    board = board_of(look(replace(machine(), planned=(plan_start(["n3"], 86_400),))))
    assert board.holes[0][1] == shown(after(86_400))


def test_a_board_has_a_row_for_each_job_hole_and_lease() -> None:
    board = board_of(look(machine()))
    assert [row[:3] for row in board.jobs] == [
        ("7", "ann", "running"),
        ("8", "b[red]ob", "running"),
    ]
    assert [row[:2] for row in board.holes] == [
        ("1", shown(after(300), NOW)),
        ("2", "no known end"),
    ]
    assert [(row[0], row[4], row[5]) for row in board.leases] == [
        ("7_0", "n1", "in 2:05"),
        ("8_0", "n2", "in 8:20"),
    ]
    assert any("grow 7_1" in line for line in board.actions)
    first, second, third = board.summary
    assert first.endswith("  6 nodes: 3 free, 2 busy, 1 down")
    assert second.startswith("2 used by 2 malleable jobs  |  next tick: ")
    assert third == "3 CPUs that no job uses: 3 on idle nodes, 0 on partly used nodes, 0 stranded"


def test_a_board_for_a_user_has_only_that_user_s_jobs() -> None:
    board = board_of(look(machine()), "ann")
    assert [row[0] for row in board.jobs] == ["7"]
    assert [row[0] for row in board.leases] == ["7_0"]


def test_a_job_that_is_gone_has_no_lines() -> None:
    report = look(machine())
    assert job_lines(report, 7)[0].startswith("job 7 of ann: running")
    assert job_lines(report, 99) == ()


def drive(
    look: Callable[[], TickReport],
    steps: Callable[[Any, Any], Awaitable[None]],
    width: int = 120,
) -> None:
    """Run `steps(app, pilot)` on a screen in memory, once the first look has been shown."""

    async def run() -> None:
        app = Top(look, 3600, "ann")
        async with app.run_test(size=(width, 30)) as pilot:
            await settled(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())


async def settled(app: Any, pilot: Any) -> None:
    await app.workers.wait_for_complete()
    await pilot.pause()


def cells(app: Any, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name}-table")
    return [[str(cell) for cell in table.get_row_at(i)] for i in range(table.row_count)]


def text_of(app: Any, name: str) -> str:
    return str(app.query_one(name).render())


def test_the_screen_shows_the_text_of_the_board_unchanged() -> None:
    async def steps(app: Any, pilot: Any) -> None:
        assert [row[1] for row in cells(app, "jobs")] == ["ann", "b[red]ob"]
        assert len(cells(app, "holes")) == 2
        assert "2 used by 2" in text_of(app, "#summary")

    drive(lambda: look(machine()), steps)


def test_eighty_columns_have_room_for_the_whole_board() -> None:
    named = make_job(LATER, job_id=8, user="b" * 40)
    seen = replace(machine(), jobs=(named,))

    async def steps(app: Any, pilot: Any) -> None:
        assert app.query_one("#summary").size.height == 3
        assert app.query_one("#jobs-table").virtual_size.width <= 80
        assert cells(app, "jobs")[0][1] == "b" * 15 + "…"
        keys = app.query("FooterKey")
        assert max(key.region.right for key in keys) <= 80

    drive(lambda: look(seen), steps, width=80)


def test_u_shows_the_jobs_of_the_caller_and_enter_explains_a_job() -> None:
    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("u")
        assert [row[0] for row in cells(app, "jobs")] == ["7"]
        await pilot.press("u", "down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, Explanation)
        assert "job 8 of b[red]ob" in str(app.screen.query_one("Static").render())
        app.action_refresh()  # as the clock does, under the explanation
        await settled(app, pilot)
        await pilot.press("escape")
        assert not isinstance(app.screen, Explanation)

    drive(lambda: look(machine()), steps)


def test_the_front_tab_has_the_keys() -> None:
    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("h")
        await pilot.press("j")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Explanation)

    drive(lambda: look(machine()), steps)


def test_a_slow_slurm_is_not_asked_again_before_it_has_answered() -> None:
    asked, answer = [], threading.Event()

    def slow() -> TickReport:
        asked.append(1)
        if len(asked) > 1:
            answer.wait(20)
        return look(machine())

    async def steps(app: Any, pilot: Any) -> None:
        for _ in range(4):
            app.action_refresh()
            await pilot.pause()
        assert len(asked) == 2  # the first reading, and a reading that is under way
        answer.set()
        await settled(app, pilot)
        app.action_refresh()
        await settled(app, pilot)
        assert len(asked) == 3

    drive(slow, steps)


def test_a_failed_reading_is_reported_and_the_last_tables_are_kept() -> None:
    outcomes = iter([look(machine())])

    def once() -> TickReport:
        try:
            return next(outcomes)
        except StopIteration:
            raise RetryLater("squeue did not answer within 10 s") from None

    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("r")
        await settled(app, pilot)
        assert "squeue did not answer" in text_of(app, "#fault")
        assert len(cells(app, "jobs")) == 2

    drive(once, steps)


def test_a_slow_reading_delays_no_key_and_pause_stops_reading() -> None:
    looks: list[float] = []
    go = threading.Event()

    def slow() -> TickReport:
        looks.append(1)
        if len(looks) > 1:
            go.wait(10)
        return look(machine())

    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("r", "h")
        assert app.query_one("TabbedContent").active == "holes"
        go.set()
        await settled(app, pilot)
        await pilot.press("space")
        app._next_look()
        await settled(app, pilot)
        assert len(looks) == 2
        assert "press space" in text_of(app, "#fault")

    drive(slow, steps)


def test_without_a_terminal_top_names_the_alternative(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top"]) == 64
    assert "malleable top --once" in capsys.readouterr().err


def test_now_is_that_of_the_machine() -> None:
    assert board_of(look(machine())).summary[0].startswith(shown(NOW, NOW))
