"""The pages in a real browser: what a person clicks, what a script would try, what the policy blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console.browser import HOW, browser, chromium
from console.sample import DONE, LIVE, PLAN, TOKEN, sample_console, served
from console.site_of import SCRIPT
from console.waiting import wait_until
from rekappa.store.desk import Desk
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.tasks.standing import tasks

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Page

    from rekappa.home import Home

pytestmark = pytest.mark.skipif(chromium() is None, reason=HOW)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Home, Page]]:
    """The sample project, served, and a browser that its owner's address let in; every complaint of it is a failure."""
    folder: Path = tmp_path_factory.mktemp("project") / "demo"
    console = sample_console(folder)
    complaints: list[str] = []
    with served(console) as address, browser() as opened:
        context = opened.new_context(timezone_id="Asia/Tokyo")
        page = context.new_page()
        page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/login?token={TOKEN}")
        assert page.title() == "Apps · rekappa"
        yield address, console.home, page
        context.close()
    assert complaints == []


def test_switch_a_source_by_clicking(told: tuple[str, Home, Page]) -> None:
    address, home, page = told
    page.goto(f"{address}/apps/plays")
    page.get_by_role("radio", name="backfill iceberg lake.events.impressions").check()
    page.get_by_role("button", name="Switch impressions").click()
    assert "for the next runs it will be 'backfill'" in page.inner_text("main")
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("heading", name="Kept for the next runs").wait_for()
    assert [one.text for one in Desk.open(home).overrides("plays")] == ["sources.impressions.selected=backfill"]
    page.get_by_role("button", name="Take back").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("heading", name="Sources", exact=True).wait_for()
    assert Desk.open(home).overrides("plays") == []


def test_pick_the_window_on_the_picture_and_see_what_it_holds(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    page.goto(f"{address}/apps/plays/backfill?start=2026-11-01T12:40Z&end=2026-11-01T14:00Z&plan={PLAN}")
    page.wait_for_selector("#estimate table")
    before = page.inner_text("#estimate")
    assert "A join within a bounded time" in page.inner_text("#plan")
    box = page.locator("svg.pick").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_function("text => document.getElementById('estimate').innerText !== text", arg=before)
    start, end = page.input_value("#start"), page.input_value("#end")
    assert "2026-11-01T12:" in start
    assert "2026-11-01T13:" in end
    page.fill("#end", "2026-11-01T11:00Z")
    page.get_by_text("the end must be after the start").wait_for()


def test_a_run_moves_while_one_looks_and_times_are_the_reader_s(told: tuple[str, Home, Page]) -> None:
    address, home, page = told
    store = RunStore.open(home)
    spec = {"start": "2026-11-01T12:00Z", "end": "2026-11-01T13:00Z", "sinks": ["plays"]}
    store.create(Run("backfill_going", "plays", Kind.BACKFILL, "f", spec=spec))
    job = {"job": "plays", "mode": "ordered", "total": 9, "planned_rows": 900, "seconds_left": 3.0}
    with store.claim([run_lease("backfill_going")], "run") as claim:
        claim.begin("backfill_going")
        claim.update(progress={"jobs": [{**job, "done": 1, "rows": 100}]})
        page.goto(f"{address}/runs/backfill_going")
        page.get_by_text("slice 1 of 9").wait_for()
        assert "2026-11-01 21:00:00 (2026-11-01 12:00:00 UTC)" in page.inner_text("main")
        claim.update(progress={"jobs": [{**job, "done": 7, "rows": 700}]})
        page.get_by_text("slice 7 of 9").wait_for()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Yes").click()
        page.get_by_text("asked to pause").wait_for(timeout=300_000)
        assert claim.wish() == "pause"
        claim.end(State.STOPPED)
    page.get_by_role("button", name="Resume").wait_for()
    wait_until(lambda: not any(one.state.going for one in tasks(home)), "the command has ended")


def test_effect_first_then_publish_asks(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    page.goto(f"{address}/runs/{DONE}/validation")
    assert "95.21 %" in page.inner_text("main")
    page.get_by_role("link", name="To publish").click()
    assert "2,391" in page.inner_text("main")
    page.get_by_role("button", name="Publish", exact=True).click()
    assert page.locator("pre").inner_text() == f"rekappa publish {DONE} --yes --json"
    page.get_by_role("link", name="No, go back").click()
    page.get_by_role("heading", name=DONE).wait_for()


def test_script_in_data_does_not_run_and_the_policy_blocks_inline_code(told: tuple[str, Home, Page]) -> None:
    address, home, page = told
    dialogs: list[str] = []

    def noted(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", noted)
    RunStore.open(home).update(LIVE, error=f"{SCRIPT}<script>alert(2)</script>")
    for path in (f"/runs/{LIVE}", "/runs", "/apps/plays", "/apps/plays/archive", f"/runs?app={SCRIPT}"):
        page.goto(address + path)
        page.wait_for_load_state("load")
    page.goto(f"{address}/runs/{LIVE}")
    page.get_by_text("onerror=alert(1)").first.wait_for()
    assert dialogs == []


EVERY_PAGE = [
    "/", "/apps/plays", "/apps/plays/backfill", "/apps/plays/archive", "/apps/plays/checkpoints", "/apps/plays/advise",
    "/runs", f"/runs/{DONE}", f"/runs/{DONE}/validation", f"/runs/{DONE}/publish", f"/runs/{DONE}/code", "/tasks",
    f"/tasks/{PLAN}", "/audit", "/topics/rates",
]  # fmt: skip
UNNAMED = """() => {
  const named = (one) => (one.labels && one.labels.length) || one.getAttribute("aria-label") || one.textContent.trim();
  const fields = [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")];
  const pictures = [...document.querySelectorAll("svg:not([aria-hidden])")].filter((one) => !one.querySelector("text"));
  return [...fields.filter((one) => !named(one)), ...pictures.filter((one) => !one.getAttribute("aria-label")),
          ...[...document.querySelectorAll("table th")].filter((one) => !one.textContent.trim())]
    .map((one) => one.outerHTML.slice(0, 120));
}"""
FOCUSED = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  return {place: box.top + window.scrollY, left: box.left, name: one.outerHTML.slice(0, 120),
          inside: document.getElementById("main").contains(one), body: one === document.body,
          outline: style.outlineStyle, width: style.outlineWidth};
}"""


def test_everything_has_a_name_for_those_who_do_not_see_it(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    for path in EVERY_PAGE:
        page.goto(address + path)
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate(UNNAMED) == [], path
        assert page.locator("h1").count() == 1, path
        assert page.locator("html[lang]").count() == 1
        ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids)), (path, "an id stands there twice")


def test_the_keyboard_goes_through_a_page_from_its_top_to_its_end_and_one_sees_where_it_is(
    told: tuple[str, Home, Page],
) -> None:
    address, _, page = told
    for path in ("/apps/plays", "/apps/plays/backfill", "/apps/plays/checkpoints", f"/runs/{DONE}/validation"):
        page.goto(address + path)
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content", path
        stops = []
        for _ in range(80):
            page.keyboard.press("Tab")
            now = page.evaluate(FOCUSED)
            if now["body"]:
                break
            assert (now["outline"], now["width"]) == ("solid", "3px"), now
            stops.append(now)
        inside = [one for one in stops if one["inside"]]
        assert len(inside) > 5, path
        # Down the page; within a line, where boxes are not equally high, to the right.
        back = [
            (one["name"], other["name"])
            for one, other in pairwise(inside)
            if other["place"] < one["place"] - 40 and other["left"] <= one["left"]
        ]
        assert back == [], path


def test_a_change_needs_no_mouse(told: tuple[str, Home, Page]) -> None:
    """By the keyboard alone: choose a candidate, ask, and say no."""
    address, home, page = told
    page.goto(f"{address}/apps/plays")
    page.get_by_role("radio", name="live kafka playbacks").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Yes").wait_for()
    page.wait_for_function("() => document.activeElement.textContent.startsWith('Yes')")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Sources", exact=True).wait_for()
    assert Desk.open(home).overrides("plays") == []


def test_pointing_at_a_chart_tells_its_values_in_the_reader_s_time(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    page.goto(f"{address}/runs/{LIVE}")
    assert page.locator("time.tick").first.inner_text().startswith("21:00:"), "noon UTC in Tokyo"
    assert page.locator(".zone").first.inner_text() == "your time"
    page.locator("svg[data-series]").nth(1).hover()
    told_there = page.locator(".readout:visible").inner_text()
    assert "2026-11-01 21:0" in told_there
    assert "plays" in told_there


def test_a_verdict_s_charts_have_the_reader_s_times(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    page.goto(f"{address}/runs/{DONE}/validation")
    chart = page.locator("svg.chart").first
    marks = chart.locator("text.mark[data-at]")
    assert marks.first.text_content() == "21:40", "12:40 UTC in Tokyo"
    assert chart.locator("text.zone").text_content() == "your time"
    days = [text for text in chart.locator("[data-shape='new day']").all_text_contents() if text]
    assert days == ["2026-11-01"], "told once, where it begins"
    bar = chart.locator("g[data-shape=bar] title").first.text_content() or ""
    assert bar.startswith("2026-11-01 22:00:00 your time"), bar
    assert "13:00:00 UTC" in bar


def test_advice_leads_to_the_window_it_speaks_of(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    page.goto(f"{address}/apps/plays")
    page.get_by_role("link", name="Advice", exact=True).click()
    page.get_by_text("only what it wrote until then is wrong").wait_for()
    assert "rates" in page.inner_text("main"), "the apps that read what it writes are named"
    page.get_by_role("link", name="Plan the backfill").click()
    page.wait_for_selector("#estimate table")
    assert page.input_value("#start") == "2026-11-01T12:40Z"
    assert page.input_value("#end") == "2026-11-01T14:30Z", "as far as the wrong state reached"


def test_the_apps_are_drawn_as_they_are_chained(told: tuple[str, Home, Page]) -> None:
    address, _, page = told
    page.goto(address)
    drawn = page.get_by_role("img", name="plays to rates by table lake.demo.plays")
    assert drawn.locator("a").count() == 4, "three apps, and the topic between two of them"
    drawn.locator("a[href='/topics/rates']").click()
    page.get_by_role("heading", name="Topic rates", level=1).wait_for()
    assert "up to batch 20" in page.inner_text("main")
    page.get_by_role("link", name="rates", exact=True).first.click()
    page.get_by_role("heading", name="rates", level=1).wait_for()
    assert page.get_by_role("link", name="board", exact=True).count() == 1, "what it writes reaches the last one"


def test_without_javascript_pages_work_but_do_not_move(told: tuple[str, Home, Page]) -> None:
    address, home, page = told
    browser = page.context.browser
    assert browser is not None
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{address}/login?token={TOKEN}")
    for path in EVERY_PAGE:
        answer = plain.goto(address + path)
        assert answer is not None
        assert answer.status == 200, path
        assert len(plain.locator("main").inner_text()) > 80, path
    plain.goto(f"{address}/apps/plays/backfill?start=2026-11-01T12:40Z&end=2026-11-01T14:00Z&plan={PLAN}")
    assert "A join within a bounded time" in plain.locator("#plan").inner_text()
    plain.get_by_role("button", name="Start the backfill").click()
    assert "rekappa backfill" in plain.locator("pre").inner_text()
    plain.get_by_role("link", name="No, go back").click()
    plain.goto(f"{address}/apps/plays")
    plain.get_by_role("radio", name="backfill iceberg lake.events.playbacks").check()
    plain.get_by_role("button", name="Switch playbacks").click()
    plain.get_by_role("button", name="Yes").click()
    assert [one.key for one in Desk.open(home).overrides("plays")] == ["sources.playbacks.selected"]
    plain.get_by_role("button", name="Take back").click()
    plain.get_by_role("button", name="Yes").click()
    assert Desk.open(home).overrides("plays") == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_no_page_sideways(told: tuple[str, Home, Page], scheme: str) -> None:
    address, _, page = told
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": 375, "height": 700})
    for path in EVERY_PAGE:
        page.goto(address + path)
        wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (path, wide)
    page.goto(f"{address}/apps/plays/backfill")
    page.wait_for_selector("#estimate table")
    beyond = "cells => cells.filter(one => one.getBoundingClientRect().right > innerWidth).length"
    assert page.locator("#estimate td").evaluate_all(beyond) == 0, "all that the window holds is in sight"
