"""A console on a project with one app and some runs, without Spark and without a server: the store is filled as runs
fill it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from rekappa.console.app import make_app
from rekappa.console.context import Console
from rekappa.console.observed import Observation, Observed
from rekappa.home import Home
from rekappa.operations.logins import hashed, token_digest
from rekappa.store.desk import Desk
from rekappa.store.leases import run_lease
from rekappa.store.people import UserRole
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

PASSWORD = "correct horse battery"
SECRET = hashed(PASSWORD)
TOKEN = "a-token-for-a-program"
SCRIPT = "<img src=x onerror=alert(1)>"
CONFIG = """\
app: shop
owner: team shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks}
sinks:
  totals: {type: postgres, host: db, database: shop, table: totals, user: me, password: hunter2, key: [id]}
"""
CODE = "from rekappa import App\n\napp = App('shop')\n\n\n@app.job\ndef totals(clicks):\n    return clicks\n"


class Known(Observed):
    """Answers what a test says, and asks nobody."""

    def __init__(self, home: Home, folder: Path) -> None:
        super().__init__(home, folder)
        self.answers: dict[tuple[str, ...], Observation] = {}
        self.asked: list[tuple[str, ...]] = []

    def ask(self, *words: str, **rest: object) -> Observation:
        self.asked.append(words)
        return self.answers.get(words[:2], self.answers.get(words[:1], Observation()))


@dataclass
class Site:
    """The console, and a browser for each role."""

    home: Home
    folder: Path
    console: Console
    client: TestClient

    @property
    def desk(self) -> Desk:
        return Desk.open(self.home)

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.home)

    @property
    def known(self) -> Known:
        assert isinstance(self.console.observed, Known)
        return self.console.observed

    def browser(self) -> TestClient:
        """Nobody, with cookies of its own."""
        return TestClient(self.client.app, base_url="http://127.0.0.1", follow_redirects=False)

    def logged_in(self, name: str) -> TestClient:
        found = self.browser()
        answer = found.post("/login", data={"name": name, "password": PASSWORD, "next": "/"})
        assert answer.status_code == 303, answer.text
        return found


def form_key(client: TestClient) -> str:
    found = re.search(r'name="form_key" value="([^"]+)"', client.get("/runs").text)
    assert found is not None
    return found[1]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder, home = tmp_path / "project", Home(tmp_path / "project" / ".rekappa")
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "rekappa.yaml").write_text(CONFIG)
    (folder / "shop" / "app.py").write_text(CODE)
    home.made().logs.mkdir()
    desk = Desk.open(home)
    desk.put_person("olga", UserRole.OPERATOR, SECRET)
    desk.put_person("vera", UserRole.VIEWER, SECRET)
    desk.put_person("prometheus", UserRole.VIEWER, token_digest(TOKEN))
    console = Console(home, folder, Known(home, folder), None, "olga")
    app = make_app(console, hosts=("127.0.0.1", "localhost"))
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield Site(home, folder, console, client)


def a_backfill(site: Site, run_id: str = "backfill_1", **fields: object) -> Run:
    """A backfill that has finished."""
    spec = {"start": "2026-11-01T13:00Z", "end": "2026-11-01T14:00Z", "sinks": ["totals"], "mode": "auto"}
    given = {"id": run_id, "app": "shop", "kind": Kind.BACKFILL, "folder": str(site.folder / "shop"), "spec": spec}
    run = site.store.create(Run(**{**given, **fields}))  # type: ignore[arg-type]
    if run.state is State.CREATED:
        job = {"job": "totals", "mode": "bulk", "done": 2, "total": 2, "rows": 100, "planned_rows": 100}
        with site.store.claim([run_lease(run.id)], "run") as claim:
            claim.begin(run.id)
            claim.update(progress={"jobs": [job]})
            claim.end(State.FINISHED)
    return site.store.run(run.id)
