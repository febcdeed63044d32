"""What is refused without starting Spark: names that nobody knows, and runs that must not begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rekappa.cli.main import main
from rekappa.home import Home
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

CONFIG = """
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      past: {type: iceberg, table: lake.shop.clicks, follow: true}
sinks:
  totals: {type: iceberg, table: lake.shop.totals, event_time: event_ts}
"""
CODE = "from rekappa import App\n\napp = App('shop')\n\n\n@app.job\ndef totals(clicks):\n    return clicks\n"
SELECTED = {"selected": {"clicks": "live"}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """A project with a finished backfill, and no Spark."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "rekappa.yaml").write_text(CONFIG)
    (tmp_path / "shop" / "app.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    for module in ("rekappa.spark.session", "rekappa.runs.live", "rekappa.runs.session"):
        monkeypatch.setattr(f"{module}.open_session", started)
    found = RunStore.open(Home(tmp_path / ".rekappa").made())
    spec = {"start": "2026-11-01T13:00Z", "end": "2026-11-01T14:00Z", "sinks": ["totals"]}
    folder = str(tmp_path / "shop")
    found.create(Run("backfill_1", "shop", Kind.BACKFILL, folder, State.FINISHED, spec=spec))
    found.create(Run("live_other", "other", Kind.LIVE, folder, State.STOPPED))
    found.create(Run("live_test", "shop", Kind.LIVE, folder, State.STOPPED, spec={"elsewhere": {"totals": "test"}}))
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("validate", "backfill_1", "--live-run", "nope"), "Cannot find run 'nope'"),
        (("validate", "backfill_1", "--live-run", "backfill_1"), "it is a backfill run of shop"),
        (("validate", "backfill_1", "--live-run", "live_other"), "it is a live run of other"),
        (("validate", "backfill_1", "--live-run", "live_test"), "it wrote sink 'totals' to its candidate 'test'"),
        (("diff", "backfill_1", "--sink", "nope"), "Cannot find sink 'nope' in run backfill_1"),
        (("publish", "backfill_1", "--sink", "nope", "--dry-run"), "Cannot find sink 'nope' in run backfill_1"),
        (("undo", "backfill_1", "--sink", "nope", "--dry-run"), "Cannot find sink 'nope' in run backfill_1"),
    ],
)
def test_names_that_nobody_knows(store: RunStore, words: tuple[str, ...], said: str) -> None:
    told = call(*words)
    assert (told.exit_code, said in told.stderr) == (2, True), told.output


def test_a_column_that_staging_does_not_have(store: RunStore, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    home = Home(tmp_path / ".rekappa")
    made = SqlCatalog("lake", uri=f"sqlite:///{home.catalog}", warehouse=f"file://{home.root}/warehouse")
    made.create_namespace("rekappa_staging")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "total", LongType()))
    made.create_table("rekappa_staging.backfill_1__totals", schema=schema)
    told = call("validate", "backfill_1", "--ignore", "totl")
    assert (told.exit_code, "Cannot ignore totl" in told.stderr) == (2, True), told.output
    assert "The columns are id, total." in told.stderr


def test_a_dry_run_meets_the_refusal_that_the_run_would(store: RunStore) -> None:
    """Which run goes on is said; one that may not is refused as it would be, and nothing is made."""
    told = call("run", "shop", "--dry-run")
    assert (told.exit_code, "begins a new run" in told.stderr) == (0, True), told.output
    store.create(Run("live_1", "shop", Kind.LIVE, "shop", spec=SELECTED))
    with store.claim([run_lease("live_1")], "run") as claim:
        claim.begin("live_1")
        told = call("run", "shop", "--fresh", "--dry-run")
        assert (told.exit_code, "run live_1 is going" in told.stderr) == (2, True), told.output
        claim.end(State.STOPPED)
    told = call("run", "shop", "--dry-run")
    assert (told.exit_code, "goes on with live_1" in told.stderr) == (0, True), told.output
    told = call("run", "shop", "--dry-run", "--set", "sources.clicks.selected=past")
    assert (told.exit_code, "Cannot continue live run live_1" in told.stderr) == (2, True), told.output
    assert [run.id for run in store.runs("shop", Kind.LIVE)] == ["live_1", "live_test"]


def test_advice_on_an_app_that_never_ran(store: RunStore) -> None:
    told = call("advise", "shop", "--start", "2026-11-01T13:00Z", "--end", "2026-11-01T14:00Z")
    assert (told.exit_code, "it never ran here" in told.stderr) == (2, True), told.output
