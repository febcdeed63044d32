"""What the pages show: escaped, in a fixed number of questions to the store, with a next step where nothing is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from html import unescape

from click.testing import CliRunner
from sqlalchemy import event, insert

from console.site_of import CONFIG, SCRIPT, Site, a_backfill
from rekappa.cli.main import main
from rekappa.console.observed import Observation
from rekappa.expect import CodeChange
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.dialects import dialect_of
from rekappa.store.host import this_host
from rekappa.store.kept import keep_code
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, Start, State
from rekappa.store.rows import run_row
from rekappa.store.tables import RUNS
from rekappa.store.task import Task, TaskState
from rekappa.tasks.files import answer_file, log_file
from rekappa.timeline import Window
from rekappa.validate.kept import verdict_of
from rekappa.validate.over_time import OverTime, Stretches
from rekappa.validate.result import Cause, Comparison, Outcome, Sample, SinkVerdict, Verdict

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def a_verdict(run: str, value: str = "x") -> Verdict:
    window = Window(NOON, NOON + timedelta(hours=1))
    sample = Sample("different", Cause.CODE, ("name",), {"id": 1, "name": value}, {"id": 1, "name": None})
    over_time = OverTime(Stretches(NOON, timedelta(minutes=1), 3), {"change in code": (0, 2, 1)}, {value: (0, 2, 1)})
    found = Comparison(
        10, 10, 7, 3, 0, 0, ("id",), {value: 3}, {Cause.CODE: 3}, CodeChange({(value,): 3}, 0, 0), 0, {"at": "ignored"},
        (sample,), (value,), ("control_1",), over_time,
    )  # fmt: skip
    sink = SinkVerdict(
        "totals", "lake.shop.totals", found, Outcome.NEEDS_YES, (value,), None, staging=7, open_from=NOON
    )
    return Verdict(run, "shop", window.start, window.end, NOON, (sink,))


def overview(value: str = "eu") -> list[dict[str, object]]:
    cells = [10] * 240
    return [
        {
            "source": "clicks",
            "table": "lake.events.clicks",
            "files": 3,
            "bytes": 24_000,
            "start": "2026-11-01T12:00Z",
            "end": "2026-11-01T16:00Z",
            "rows": {value: cells},
            "dead": [0] * 239 + [2],
            "complete_until": {value: "2026-11-01T15:30Z"},
        }
    ]


def test_a_kept_verdict_is_the_verdict() -> None:
    verdict = a_verdict("backfill_1")
    assert verdict_of(json.loads(json.dumps(verdict.as_json(), default=str))) == verdict
    assert verdict_of(None) is None
    assert verdict_of({**verdict.as_json(), "version": 1}) is None


def test_script_in_anything_that_is_shown_stays_text(site: Site) -> None:
    """A run's id, error, settings and log, a sink's rows, a dead letter, a region, an override, a name in the trail."""
    run = a_backfill(site, f"backfill_{SCRIPT}", error=SCRIPT, state=State.FAILED, logs=("spark.log",))
    site.store.update(run.id, validation=a_verdict(run.id, SCRIPT).as_json(), spec={**run.spec, "note": SCRIPT})
    (site.home.logs / "spark.log").write_text(f"ERROR {SCRIPT}\n")
    site.desk.tell(SCRIPT, SCRIPT, SCRIPT, SCRIPT, SCRIPT)
    task = Task(
        "task_1", ("run", SCRIPT), SCRIPT, "cli", "/", "h", "m", "shop", run.id, state=TaskState.FAILED, error=SCRIPT
    )
    site.desk.add_task(task)
    log_file(site.home, "task_1").write_text(SCRIPT)
    site.desk.override("shop", "owner", SCRIPT, SCRIPT)
    for name, words, told in (
        ("task_2", ("advise", "shop"), {
            "facts": {"window": {"start": None, "end": None}, "trouble": SCRIPT, "run": SCRIPT, "queries": [
                {"sink": SCRIPT, "place": SCRIPT, "memory": SCRIPT, "refused": SCRIPT, "consumers": [SCRIPT]}]},
            "advice": [{"recovery": SCRIPT, "sinks": [SCRIPT], "why": [SCRIPT], "notes": [SCRIPT],
                        "commands": [f"rekappa plan shop --start '{SCRIPT}' --end '{SCRIPT}' --sink '{SCRIPT}'"]}]}),
        ("task_3", ("rewind", "shop", "--dry-run"), {"queries": [
            {"query": SCRIPT, "batch": SCRIPT, "committed": None, "savepoint": SCRIPT, "notes": [SCRIPT],
             "reset": {"sink": SCRIPT, "target": SCRIPT, "removed": 1, "restored": 0, "told": SCRIPT}}]}),
        ("task_4", ("archive", "verify", "shop"), {"sound": False, "partitions": [
            {"source": SCRIPT, "region": SCRIPT, "partition": 0, "gaps": [[1, 2]], "duplicates": []}]}),
    ):  # fmt: skip
        site.desk.add_task(Task(name, words, SCRIPT, "cli", "/", "h", "m", "shop", state=TaskState.DONE))
        answer_file(site.home, name).write_text(json.dumps(told))
    site.store.create(Run("live_1", "shop", Kind.LIVE, "f", State.STOPPED, progress={"waits": SCRIPT}))
    (site.folder / "shop" / "app.py").write_text(f"# {SCRIPT}")
    site.store.record_start(Start(run.id, "", 0, keep_code(site.home, site.folder / "shop")))
    letter = {"source": "clicks", "reason": SCRIPT, "archived": False, "region": SCRIPT, "topic": SCRIPT,
              "partition": 0, "offset": 1, "ingested": None, "size": 9, "value": "3c", "text": SCRIPT}  # fmt: skip
    status = {"source": SCRIPT, "table": SCRIPT, "lag": 1, "rows": 1, "files": 1, "small_files": 0, "bytes": 1,
              "complete_until": {SCRIPT: "2026-11-01T12:00Z"}, "dead_letters": 1}  # fmt: skip
    now = datetime.now(UTC)
    site.known.answers = {
        ("archive", "dead"): Observation([letter], now, SCRIPT),
        ("archive", "status"): Observation([status], now, SCRIPT),
        ("archive", "overview"): Observation(overview(SCRIPT), now),
        ("config",): Observation({"queries": [{"job": SCRIPT, "sink": "totals", "sources": ["clicks"]}]}, now),
    }
    olga = site.logged_in("olga")
    seen = 0
    for path in (
        "/", "/apps/shop", "/apps/shop/backfill", "/apps/shop/archive", "/apps/shop/checkpoints", "/runs", "/tasks",
        "/apps/shop/advise", f"/runs/{run.id}/code", f"/apps/shop?key={SCRIPT}", f"/apps/shop/advise?start={SCRIPT}",
        "/tasks/task_1", "/audit", f"/runs/{run.id}", f"/runs/{run.id}/validation", f"/runs/{run.id}/publish",
        f"/apps/shop/estimate?start={SCRIPT}&end=x", f"/runs/{SCRIPT}", f"/runs?app={SCRIPT}", f"/login?next={SCRIPT}",
        f"/apps/shop/backfill?start={SCRIPT}&end={SCRIPT}&mode={SCRIPT}&settings={SCRIPT}",
    ):  # fmt: skip
        answer = olga.get(path)
        assert answer.status_code in (200, 404), (path, answer.text)
        assert SCRIPT not in answer.text, path
        seen += SCRIPT in unescape(answer.text)
    assert seen > 14, "it was there to be escaped"


def test_no_secret_on_any_page(site: Site) -> None:
    olga = site.logged_in("olga")
    for path in ("/", "/apps/shop", "/apps/shop/backfill", "/api/apps"):
        assert "hunter2" not in olga.get(path).text
    assert "********" in olga.get("/apps/shop").text
    from console.site_of import form_key

    key = form_key(olga)
    for name, value in (("sinks.totals.password", "new"), ("sinks.totals.host", "postgresql://me:pw@db/x")):
        answer = olga.post("/apps/shop/override", data={"form_key": key, "sure": "yes", "key": name, "value": value})
        assert answer.status_code == 409
        assert "looks like a secret" in answer.text
    assert site.desk.overrides("shop") == []


@contextmanager
def counted(site: Site) -> Iterator[list[str]]:
    engine = dialect_of(Address.of(site.home)).engine
    told: list[str] = []

    def count(db: object, cursor: object, statement: str, *rest: object) -> None:
        told.append(statement)

    event.listen(engine, "before_cursor_execute", count)
    yield told
    event.remove(engine, "before_cursor_execute", count)


def test_ten_thousand_runs_cost_no_more_questions_than_ten(site: Site) -> None:
    olga = site.logged_in("olga")
    pages = ("/", "/runs", "/runs?app=shop&kind=live", "/apps/shop", "/apps/shop/backfill", "/runs/live_0", "/metrics")

    def fill(numbers: range) -> None:
        rows = [
            run_row(Run(f"live_{n}", "shop", Kind.LIVE, "f", State.STOPPED, NOON + timedelta(seconds=n), spec={"n": n}))
            for n in numbers
        ]
        with Database(Address.of(site.home)).changing() as db:
            db.execute(insert(RUNS), rows)

    def asked() -> dict[str, int]:
        found = {}
        for path in pages:
            with counted(site) as told:
                assert olga.get(path).status_code == 200, path
            found[path] = len(told)
        return found

    fill(range(10))
    few = asked()
    fill(range(10, 10_000))
    assert asked() == few
    first = olga.get("/runs").text
    assert first.count("/runs/live_") == 50
    assert "live_9999" in first
    assert "Older runs" in first


def test_the_json_is_that_of_the_commands(site: Site, monkeypatch: object) -> None:
    a_backfill(site)
    olga = site.logged_in("olga")
    environ = {"REKAPPA_HOME": str(site.home.root)}
    for path, words in (
        ("/api/runs", ["runs"]),
        ("/api/runs?app=shop", ["runs", "--app", "shop"]),
        ("/api/runs/backfill_1", ["runs", "backfill_1"]),
        ("/api/jobs", ["jobs", "--all"]),
    ):
        told = CliRunner().invoke(main, [*words, "--json"], env=environ)
        assert told.exit_code == 0, told.output
        assert olga.get(path).json() == json.loads(told.stdout), path
    answer = olga.get("/api/runs/nope")
    assert (answer.status_code, answer.json()["error"]) == (404, "Cannot find run 'nope'")


def test_a_run_is_shown_as_it_goes_and_the_stream_ends_with_it(site: Site) -> None:
    run = a_backfill(site)
    olga = site.logged_in("olga")
    page = olga.get(f"/runs/{run.id}").text
    for words in ("chunk 2 of 2", "finished", "2026-11-01 13:00:00 UTC", f'data-live="/live/runs/{run.id}"'):
        assert words in page
    told = olga.get(f"/live/runs/{run.id}", headers={"accept": "text/event-stream"})
    assert told.headers["content-type"].startswith("text/event-stream")
    events = [line for line in told.text.splitlines() if line.startswith("event: ")]
    assert events == ["event: part", "event: over"]


def test_the_backfill_page_draws_the_archive_and_says_what_the_window_holds(site: Site) -> None:
    site.known.answers[("archive", "overview")] = Observation(overview(), datetime.now(UTC))
    published = a_backfill(site, publication={"state": "published"})
    olga = site.logged_in("olga")
    page = olga.get("/apps/shop/backfill").text
    assert 'value="2026-11-01T15:00Z"' in page
    assert 'value="2026-11-01T16:00Z"' in page
    for drawn in ('class="chosen"', 'class="open"', 'class="published"', 'class="dead"', published.id):
        assert drawn in page
    half = olga.get("/apps/shop/estimate?start=2026-11-01T13:00Z&end=2026-11-01T15:00Z").text
    assert "1,200" in half
    assert "complete" in half
    assert "complete until" in olga.get("/apps/shop/estimate?start=2026-11-01T13:00Z&end=2026-11-01T16:00Z").text
    assert "must be after" in olga.get("/apps/shop/estimate?start=2026-11-01T13:00Z&end=2026-11-01T12:00Z").text


def test_gaps_are_drawn_where_their_messages_were_ingested(site: Site) -> None:
    site.known.answers[("archive", "overview")] = Observation(overview(), datetime.now(UTC))
    olga, host = site.logged_in("olga"), this_host()
    words = ("archive", "verify", "shop", "--json")
    proved = Task("t1", words, "olga", "console", "/", host.name, host.machine, "shop", state=TaskState.FAILED)
    site.desk.add_task(proved)
    times = [["2026-11-01T14:30:00+00:00", "2026-11-01T14:45:00+00:00"], None]
    one = {"source": "clicks", "region": "eu", "partition": 0, "gaps": [[5, 9], [12, 12]], "duplicates": [],
           "gap_times": times}  # fmt: skip
    answer_file(site.home, "t1").write_text(json.dumps({"sound": False, "partitions": [one]}))
    for path in ("/apps/shop/backfill", "/apps/shop/archive"):
        page = olga.get(path).text
        assert page.count('class="gap"') == 1, "one of them has a time"
        assert "missing: offsets 5 to 9 of region eu, partition 0" in page
    del one["gap_times"]
    answer_file(site.home, "t1").write_text(json.dumps({"sound": False, "partitions": [one]}))
    assert 'class="gap"' not in olga.get("/apps/shop/backfill").text, "of an earlier version's answer, which is told"


def test_a_topic_between_apps_says_which_messages_count(site: Site) -> None:
    (site.folder / "next").mkdir()
    text = CONFIG.replace("app: shop", "app: next").replace("topic: clicks", "topic: totals")
    (site.folder / "next" / "rekappa.yaml").write_text(text)
    (site.folder / "next" / "app.py").write_text("")
    shop = site.folder / "shop" / "rekappa.yaml"
    shop.write_text(CONFIG[: CONFIG.index("sinks:")] + "sinks:\n  totals: {type: kafka, topic: totals, key: [id]}\n")
    olga = site.logged_in("olga")
    for path in ("/", "/apps/shop", "/apps/next"):
        assert 'href="/topics/totals"' in olga.get(path).text, path
    assert 'href="/topics/clicks"' not in olga.get("/").text, "that is between no apps"
    assert "Not known" in olga.get("/topics/totals").text
    sender = {"app": "shop", "query": "totals", "run": "live_1", "counts": "up to batch 7", "until": 7}
    said = {"topic": "totals", "cluster": "main", "senders": [sender, {**sender, "run": "live_2", "counts": "all"}]}
    site.known.answers[("lineage", "totals")] = Observation(said, datetime.now(UTC))
    page = olga.get("/topics/totals").text
    assert all(word in page for word in ("up to batch 7", ">all<", "/runs/live_1", 'href="/apps/next"'))
    asked = site.known.asked[-1]
    assert asked == ("lineage", "totals", f"--app={site.folder / 'shop'}", "--cluster=main")
    (told,) = olga.get("/api/topics/totals").json()
    assert (told["cluster"], told["error"], told["lineage"]) == ("main", None, said)
    site.known.answers[("lineage", "totals")] = Observation({**said, "senders": []}, datetime.now(UTC))
    assert "No sink of rekappa has written to it" in olga.get("/topics/totals").text
    assert olga.get("/topics/--help").status_code == 404, "only what an app names is asked for"


def test_pages_without_data_say_what_to_do_next(site: Site) -> None:
    olga = site.logged_in("olga")
    for path, words in (
        ("/runs", "rekappa start APP"),
        ("/tasks", "Nothing was started yet"),
        ("/apps/shop", "never ran"),
        ("/apps/shop/backfill", "The archive is empty"),
        ("/apps/shop/archive", "Nothing is archived"),
        ("/apps/shop/checkpoints", "No checkpoints yet"),
    ):
        assert words in olga.get(path).text, path
    a_backfill(site)
    assert "Not validated yet" in olga.get("/runs/backfill_1/validation").text
    assert "First, the effect" in olga.get("/runs/backfill_1/publish").text
    assert olga.get("/runs/nope").status_code == 404
    (site.folder / "shop" / "rekappa.yaml").write_text("app: shop\nsinks: 7\n")
    assert "Cannot" in olga.get("/").text, "a wrong file is told on the page"
    assert olga.get("/apps/shop/backfill").status_code == 409
    (site.folder / "shop" / "rekappa.yaml").unlink()
    assert "rekappa new" in olga.get("/").text


def test_a_setting_is_overridden_where_it_stands(site: Site) -> None:
    olga, vera = site.logged_in("olga"), site.logged_in("vera")
    page = olga.get("/apps/shop").text
    assert "/apps/shop?key=profiles.backfill.spark.driver.memory#override" in page, "set or not"
    chosen = olga.get("/apps/shop?key=archive.trigger").text
    assert 'name="key" list="keys" value="archive.trigger"' in chosen
    assert "#override" not in vera.get("/apps/shop").text


def test_the_code_of_a_run_is_shown_as_it_was(site: Site) -> None:
    run = a_backfill(site)
    olga = site.logged_in("olga")
    assert "No code is kept" in olga.get(f"/runs/{run.id}/code").text
    code = keep_code(site.home, site.folder / "shop")
    site.store.record_start(Start(run.id, "", 0, code))
    (site.folder / "shop" / "app.py").write_text("# another day")
    page = olga.get(f"/runs/{run.id}/code").text
    assert "def totals(clicks)" in page
    assert "hunter2" not in page
    assert "another day" not in page
    assert olga.get(f"/runs/{run.id}/code?hash=feed").status_code == 404


def test_a_running_app_is_stopped_before_it_is_rewound_and_chained_apps_go_with_it(site: Site) -> None:
    """The apps that its topics reach are named; the command that takes them back too is one word longer."""
    for name, read in (("next", "totals"), ("last", "next")):
        (site.folder / name).mkdir()
        (site.folder / name / "app.py").write_text("")
        (site.folder / name / "rekappa.yaml").write_text(
            f"app: {name}\nsources:\n  {read}:\n    schema: id BIGINT, at TIMESTAMP\n    event_time: at\n"
            f"    candidates: {{live: {{type: kafka, topic: {read}}}}}\n"
            f"sinks:\n  {name}: {{type: kafka, topic: {name}}}\n"
        )
    config = (site.folder / "shop" / "rekappa.yaml").read_text()
    (site.folder / "shop" / "rekappa.yaml").write_text(
        config.partition("sinks:")[0] + "sinks:\n  totals: {type: kafka, topic: totals}\n"
    )
    site.store.create(Run("live_1", "shop", Kind.LIVE, str(site.folder / "shop")))
    olga = site.logged_in("olga")
    with site.store.claim([run_lease("live_1")], "run") as claim:
        claim.begin("live_1")
        page = olga.get("/apps/shop/checkpoints").text
        claim.end(State.STOPPED)
    assert "It is running: stop it first." in page
    assert '<a href="/apps/next/checkpoints">next</a>, <a href="/apps/last/checkpoints">last</a>' in page
    assert "shop to next by topic totals" in olga.get("/").text
    assert "kafka totals to next" in olga.get("/apps/shop").text
