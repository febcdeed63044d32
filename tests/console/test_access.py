"""Who gets in, and what is refused: not logged in, wrong role, forged request, expired session, wrong host."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from sqlalchemy import update

from console.sample import served
from console.site_of import PASSWORD, TOKEN, Site, a_backfill, form_key
from console.waiting import wait_until
from rekappa.console.app import PAGES
from rekappa.console.guard import HEADERS
from rekappa.console.hashing import AT_ONCE, MOST_WAITING
from rekappa.console.serve import Serving, require_safe
from rekappa.errors import ConfigError
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.tables import SESSIONS

LOOKING = ["/", "/runs", "/runs/backfill_1", "/apps/shop", "/apps/shop/backfill", "/apps/shop/archive", "/tasks",
           "/audit", "/live/runs/backfill_1", "/runs/backfill_1/validation", "/runs/backfill_1/publish",
           "/apps/shop/checkpoints", "/apps/shop/advise", "/runs/backfill_1/code"]  # fmt: skip
FOR_PROGRAMS = ["/api/runs", "/api/runs/backfill_1", "/api/apps", "/api/jobs", "/api/audit", "/metrics"]
CHANGES = ["/runs/backfill_1/cancel", "/runs/backfill_1/validate", "/runs/backfill_1/publish", "/runs/backfill_1/undo",
           "/runs/backfill_1/effect", "/apps/shop/start", "/apps/shop/restart", "/apps/shop/override",
           "/apps/shop/backfill", "/apps/shop/plan", "/apps/shop/archive/compact", "/apps/shop/router",
           "/apps/shop/advise", "/apps/shop/rewind", "/apps/shop/bootstrap", "/apps/shop/savepoint"]  # fmt: skip


def test_without_a_login_nothing_is_shown(site: Site) -> None:
    nobody = site.browser()
    for path in LOOKING:
        answer = nobody.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login?next="), path
    for path in FOR_PROGRAMS:
        answer = nobody.get(path)
        assert (answer.status_code, list(answer.json())) == (401, ["error"]), path
    for path in CHANGES:
        assert nobody.post(path).status_code == 303, path
    assert site.desk.deeds() == []
    assert nobody.get("/health").json() == {"state": "up"}


def test_every_route_is_either_open_or_asks_for_a_login(site: Site) -> None:
    """A page that is added later is guarded without anybody thinking of it."""
    nobody = site.browser()
    paths = {str(route.path) for page in PAGES for route in page.router.routes}
    assert len(paths) > 30
    opened = {path for path in paths if nobody.get(path.replace("{", "").replace("}", "")).status_code == 200}
    assert opened == {"/login", "/health"}


def test_a_wrong_password_is_refused_and_slowed_down(site: Site) -> None:
    nobody = site.browser()
    for name, password in (("olga", "wrong"), ("nobody", PASSWORD), ("prometheus", TOKEN), ("", "")):
        answer = nobody.post("/login", data={"name": name, "password": password})
        assert answer.status_code == 401
        assert "Name or password is wrong" in answer.text
        assert not answer.cookies
    site.console.attempts.free = 0
    nobody.post("/login", data={"name": "olga", "password": "wrong"})
    assert nobody.post("/login", data={"name": "olga", "password": PASSWORD}).status_code == 429


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(site: Site) -> None:
    answer = site.browser().post("/login", data={"name": "olga", "password": PASSWORD, "next": "https://evil.example"})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert answer.headers["location"] == "/", "a login leads nowhere else"
    for inside, where in (("/runs", "/runs"), ("//evil.example", "/"), ("/\\evil.example", "/")):
        told = site.browser().post("/login", data={"name": "olga", "password": PASSWORD, "next": inside})
        assert told.headers["location"] == where


def test_a_viewer_looks_and_changes_nothing(site: Site) -> None:
    a_backfill(site)
    vera = site.logged_in("vera")
    for path in LOOKING:
        assert vera.get(path).status_code == 200, path
    assert "Start the backfill" not in vera.get("/apps/shop/backfill").text
    for path in CHANGES:
        answer = vera.post(path, data={"form_key": form_key(vera), "sure": "yes"})
        assert answer.status_code == 403, path
        assert "role of operator" in answer.text
    assert [one.what for one in site.desk.deeds()] == ["log in"]
    assert vera.post("/logout", data={"form_key": form_key(vera)}).status_code == 303
    assert vera.get("/").status_code == 303


@pytest.mark.parametrize("path", CHANGES)
def test_a_forged_request_changes_nothing(site: Site, path: str) -> None:
    a_backfill(site)
    olga = site.logged_in("olga")
    key = form_key(olga)
    other = form_key(site.logged_in("olga"))
    for data, headers in (
        ({"sure": "yes"}, {}),
        ({"sure": "yes", "form_key": ""}, {}),
        ({"sure": "yes", "form_key": other}, {}),
        ({"sure": "yes", "form_key": key}, {"origin": "https://evil.example"}),
        ({"sure": "yes", "form_key": key}, {"origin": "null"}),
        ({"sure": "yes", "form_key": key}, {"sec-fetch-site": "cross-site"}),
        ({"sure": "yes", "form_key": key}, {"sec-fetch-site": "same-site"}),
    ):
        assert olga.post(path, data=data, headers=headers).status_code == 403, (data, headers)
    assert {one.what for one in site.desk.deeds()} == {"log in"}
    assert site.desk.tasks() == []


def test_an_expired_session_is_asked_to_log_in_again(site: Site) -> None:
    olga = site.logged_in("olga")
    assert olga.get("/runs").status_code == 200
    with Database(Address.of(site.home)).changing() as db:
        db.execute(update(SESSIONS).values(expires=site.desk.deeds()[0].at))
    answer = olga.get("/runs?app=shop")
    assert answer.headers["location"] == "/login?next=/runs%3Fapp%3Dshop"
    assert olga.post("/apps/shop/start", data={"sure": "yes"}).status_code == 303
    assert site.desk.tasks() == []


def test_a_token_is_for_programs(site: Site) -> None:
    program, wrong = ({"authorization": f"Bearer {one}"} for one in (TOKEN, "another"))
    for path in FOR_PROGRAMS:
        if "backfill_1" not in path:
            assert site.browser().get(path, headers=program).status_code == 200, path
        assert site.browser().get(path, headers=wrong).status_code == 401, path
    refused = site.browser().post("/apps/shop/start", headers={**program, "accept": "application/json"})
    assert (refused.status_code, "operator" in refused.json()["error"]) == (403, True)


def test_only_the_names_of_this_machine_lead_here(site: Site) -> None:
    for host, status in (("localhost:8787", 200), ("127.0.0.1", 200), ("evil.example", 400), ("", 400)):
        assert site.browser().get("/login", headers={"host": host}).status_code == status, host


def test_every_answer_has_the_headers(site: Site) -> None:
    olga = site.logged_in("olga")
    for answer in (
        olga.get("/"),
        olga.get("/static/console.js"),
        olga.get("/nope"),
        olga.get("/runs/nope"),
        olga.get("/api/runs"),
        site.browser().get("/runs"),
        site.browser().post("/runs/x/cancel", headers={"origin": "https://evil.example"}),
    ):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy


def test_pages_need_nothing_from_elsewhere_and_no_inline_code(site: Site) -> None:
    import re

    a_backfill(site)
    olga = site.logged_in("olga")
    for path in LOOKING:
        page = olga.get(path).text
        assert not re.search(r'(?:src|href|action)="(?!/|#)', page), path
        assert not re.search(r"\sstyle=|\son\w+=|<style|<script>", page), path


def test_the_owner_s_address_lets_in_only_while_no_login_is_set_up(site: Site) -> None:
    assert site.browser().get("/login?token=x").status_code == 403
    site.console.token = "secret-of-this-start"
    assert site.browser().get("/login?token=wrong").status_code == 403
    owner = site.browser()
    assert owner.get("/login?token=secret-of-this-start").status_code == 303
    assert "olga · operator" in owner.get("/runs").text


@pytest.mark.parametrize(
    ("serving", "people", "words"),
    [
        (Serving("127.0.0.1", 1), False, None),
        (Serving("::1", 1), False, None),
        (Serving("localhost", 1), False, None),
        (Serving("0.0.0.0", 1), False, "no login is set up"),
        (Serving("0.0.0.0", 1), True, "without TLS"),
        (Serving("10.0.0.1", 1), True, "without TLS"),
        (Serving("console.example.org", 1), True, "without TLS"),
        (Serving("127.0.0.1", 1, proxied=True), False, "no login is set up"),
        (Serving("0.0.0.0", 1, proxied=True), True, None),
    ],
)
def test_it_refuses_to_listen_among_strangers(site: Site, serving: Serving, people: bool, words: str | None) -> None:
    known = site.desk.people() if people else []
    if words is None:
        require_safe(serving, known)
        return
    with pytest.raises(ConfigError, match=words):
        require_safe(serving, known)


def test_guessing_in_parallel_is_no_quicker_than_one_after_the_other(site: Site) -> None:
    with served(site.console) as address, ThreadPoolExecutor(30) as many:
        guess = {"name": "olga", "password": "wrong"}
        answers = list(many.map(lambda _: requests.post(f"{address}/login", data=guess).status_code, range(60)))
    # Five, and one for each of the growing waits that passed meanwhile: 1, 2, 4, 8 seconds and so on.
    assert 5 <= answers.count(401) < 15
    assert set(answers) == {401, 429}


def test_strangers_can_not_make_it_compare_without_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few at a time, a bounded number waits, and pages that need no password do not wait for them."""
    gate, going, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def slow(password: str, secret: str) -> bool:
        with lock:
            going[0] += 1
            most[0] = max(most[0], going[0])
        gate.wait(120)
        with lock:
            going[0] -= 1
        return False

    monkeypatch.setattr("rekappa.console.hashing.fits", slow)
    with served(site.console) as address, ThreadPoolExecutor(60) as many:
        asked = [
            many.submit(requests.post, f"{address}/login", data={"name": f"n{n}", "password": "x"}) for n in range(60)
        ]
        wait_until(lambda: sum(one.done() for one in asked) == 60 - MOST_WAITING, "the rest was sent away")
        assert requests.get(f"{address}/health").status_code == 200
        assert requests.get(f"{address}/login").status_code == 200
        gate.set()
        answers = [one.result().status_code for one in asked]
    assert (answers.count(503), answers.count(401)) == (60 - MOST_WAITING, MOST_WAITING)
    assert most == [AT_ONCE]


def test_what_makes_no_sense_in_an_address_is_refused_with_all_headers(site: Site) -> None:
    olga = site.logged_in("olga")
    for path, status in (
        ("/runs?before=x", 400), ("/runs?before=%00", 400), ("/runs/%00", 400), ("/runs?app=%00", 400),
        ("/api/runs?limit=x", 422), ("/api/runs?limit=99999999999999999999", 200), ("/api/audit?limit=-7", 200),
        ("/apps/shop/estimate?start=%ff&end=x", 200), ("/runs?before=99999-01-01", 400),
    ):  # fmt: skip
        answer = olga.get(path)
        assert answer.status_code == status, (path, answer.text)
        assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"], path


def test_what_nobody_foresaw_is_answered_with_all_headers(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("postgresql://me:hunter2@db/x")

    olga = site.logged_in("olga")
    monkeypatch.setattr("rekappa.console.pages.tasks.tasks", broken)
    answer = olga.get("/tasks")
    assert (answer.status_code, "hunter2" in answer.text) == (500, False)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "hunter2" not in said


def test_an_app_s_name_is_not_overridden_nor_what_can_not_be(site: Site) -> None:
    olga = site.logged_in("olga")
    key = form_key(olga)
    for name, value in (
        ("app", "other"), ("owner", "a\0b"), ("entry", "../../etc/passwd"), ("entry", "/etc/passwd"),
        ("profiles.live.spark.driver.memory", "banana"), ("profiles.live.spark.executor.cores", "0"),
        ("profiles.live.master", "banana"), ("clusters.main.bootstrap", "me:hunter2@kafka:9092"),
    ):  # fmt: skip
        asked = {"form_key": key, "key": name, "value": value, "sure": "yes"}
        answer = olga.post("/apps/shop/override", data=asked)
        assert (answer.status_code, "hunter2" in answer.text) == (409, False), (name, answer.text)
    assert site.desk.overrides("shop") == []
    assert "/apps/shop?key=app#override" not in olga.get("/apps/shop").text


def test_a_password_in_a_sink_s_address_is_not_drawn(site: Site) -> None:
    config = (site.folder / "shop" / "rekappa.yaml").read_text().partition("sinks:")[0]
    path = "{type: parquet, path: 's3a://AK:SECRET27@bucket/x'}"
    (site.folder / "shop" / "rekappa.yaml").write_text(f"{config}sinks:\n  totals: {path}\n")
    olga = site.logged_in("olga")
    for page in ("/", "/apps/shop", "/api/apps"):
        assert "SECRET27" not in olga.get(page).text, page
    assert "s3a://AK:********@bucket/x" in olga.get("/").text


def test_a_stream_ends_with_the_session(site: Site) -> None:
    """Of a run that goes on: removed from the logins, its reader is told nothing more."""
    site.store.create(Run("live_1", "shop", Kind.LIVE, "f"))
    with site.store.claim([run_lease("live_1")], "run") as claim, served(site.console) as address:
        claim.begin("live_1")
        claim.update(progress={"queries": [{"query": "totals", "rows": 1, "lag": 0}]})
        with requests.Session() as vera:
            vera.post(f"{address}/login", data={"name": "vera", "password": PASSWORD, "next": "/health"})
            headers = {"accept": "text/event-stream"}
            with vera.get(f"{address}/live/runs/live_1", headers=headers, stream=True, timeout=120) as stream:
                lines = stream.iter_lines()
                assert next(lines) == b"event: part"
                site.desk.drop_person("vera")
                assert not any(b"event: over" in line for line in lines), "it ended, though the run goes on"
        claim.end(State.STOPPED)


def test_two_consoles_on_one_machine_do_not_log_each_other_out(site: Site) -> None:
    with served(site.console) as one, served(site.console) as other, requests.Session() as olga:
        for address in (one, other):
            olga.post(f"{address}/login", data={"name": "olga", "password": PASSWORD, "next": "/health"})
        assert len({cookie.name for cookie in olga.cookies}) == 2
        assert [olga.get(f"{at}/runs", allow_redirects=False).status_code for at in (one, other)] == [200, 200]


def test_an_app_whose_name_another_folder_has_says_so(site: Site) -> None:
    shutil.copytree(site.folder / "shop", site.folder / "a_backup")
    page = site.logged_in("olga").get("/").text
    assert f"{site.folder / 'shop'} holds an app of the same name" in page
