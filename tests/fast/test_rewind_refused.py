"""Rewinds that are refused before Spark is started: through the command line, over real files and a real store.

Each ends with code 2 and names what is wrong; afterwards every file and every record is as it was.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rekappa.checkpoints.savepoints import lease_of, take
from rekappa.cli.main import main
from rekappa.home import Home
from rekappa.recovery.plan import RewindPlan
from rekappa.runs.current import OPEN, REWIND, UNDOING
from rekappa.storage.location import Location
from rekappa.store.record import Batch, Fork, Kind, Run, State
from rekappa.store.runs import RunStore

RUN = "live_20261101_000000_ab12"
CODE = """
from rekappa import App

app = App("shop")

@app.job
def counts(clicks):
    return clicks
"""
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
  counts: {type: "null"}
"""
BATCHES = 6
FIRST, MINUTE = datetime(2026, 11, 1, tzinfo=UTC), timedelta(minutes=1)


@dataclass(frozen=True)
class Shop:
    """An app with a live run of six batches that has stopped; its state is RocksDB's, a snapshot every third batch."""

    folder: Path
    home: Home
    store: RunStore

    @property
    def query(self) -> Location:
        return self.home.checkpoint("shop", RUN) / "counts"

    def everything(self) -> dict[str, Any]:
        files = (path for path in self.home.root.rglob("*") if path.is_file() and not path.name.startswith("runs.db"))
        return {
            "files": {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files},
            "runs": self.store.runs(),
            "batches": self.store.batches(RUN, "counts"),
        }

    def call(self, *words: str, home: Home | None = None) -> Any:
        environ = {"REKAPPA_HOME": str((home or self.home).root)}
        return CliRunner(env=environ).invoke(main, [words[0], str(self.folder), *words[1:]])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    def no_spark(*_: Any) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("rekappa.runs.live.live_session", no_spark)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "app.py").write_text(CODE)
    (folder / "rekappa.yaml").write_text(CONFIG)
    home = Home(tmp_path / ".rekappa")
    store = RunStore.open(home)
    spec = {"selected": {"clicks": "live"}, "targets": {"counts": ""}, "elsewhere": {}}
    store.create(Run(RUN, "shop", Kind.LIVE, str(folder), state=State.STOPPED, spec=spec))
    store.record_batches(Batch(RUN, "counts", at, (), None, FIRST + at * MINUTE) for at in range(-1, BATCHES))
    made = Shop(folder, home, store)
    for at in range(BATCHES):
        (made.query / "offsets" / str(at)).write(f'v1\n{{"batchTimestampMs":1790000000000}}\n{{"clicks":{{"0":{at}}}}}')
        (made.query / "commits" / str(at)).write("v1\n{}")
        (made.query / f"state/0/0/{at + 1}.changelog").write("changes")
    for version in (3, 6):
        (made.query / f"state/0/0/SSTs/{version}.sst").write("sst")
        with zipfile.ZipFile((made.query / f"state/0/0/{version}.zip").path, "w") as packed:
            packed.writestr("metadata", f'v1\n{{"sstFiles":[{{"dfsSstFileName":"{version}.sst"}}]}}')
    (made.query / "metadata").write('{"id":"own"}')
    return made


def purged(shop: Shop) -> None:
    for name in ("commits/0", "offsets/0", "state/0/0/1.changelog"):
        (shop.query / name).remove()


def lost(name: str) -> Callable[[Shop], None]:
    def remove(shop: Shop) -> None:
        (shop.query / name).remove()

    return remove


def gone(shop: Shop) -> None:
    shop.query.remove()


def damaged(shop: Shop) -> None:
    (shop.query / "state/0/0/6.zip").write("no zip")


def open_operation(state: str) -> Callable[[Shop], object]:
    return lambda shop: shop.store.update(RUN, progress={REWIND: state})


def abandoned(shop: Shop) -> None:
    shop.store.update(RUN, state=State.ABANDONED)


def kept(shop: Shop) -> None:
    take(shop.home, "shop", RUN, ["counts"], "kept")


def kept_and_lost(shop: Shop) -> None:
    kept(shop)
    (shop.home.savepoints("shop") / "kept/counts/state/0/0/6.zip").remove()


def without_log(shop: Shop) -> None:
    for at in range(BATCHES):
        (shop.query / f"offsets/{at}").remove()


def nothing(shop: Shop) -> None:
    pass


LONG_AGO = (datetime.now(UTC) - timedelta(days=400)).isoformat()
REFUSALS: dict[str, tuple[Callable[[Shop], object], tuple[str, ...], tuple[str, ...]]] = {
    "purged": (purged, ("--to", "0"), ("to batch 0: there is no such batch", "can be restored: 2 (")),
    "a batch that never was": (nothing, ("--to", "99"), ("to batch 99: there is no such batch", "5 (committed")),
    "a change is lost": (
        lost("state/0/0/2.changelog"),
        ("--to", "1"),
        ("to batch 1: it lacks state/0/0/2.changelog", "can be restored: 0 (", "2 ("),
    ),
    "the log is lost": (lost("offsets/3"), ("--to", "4"), ("to batch 4: it lacks offsets/3", "2 (", "5 (")),
    "a file that a snapshot names is lost": (
        lost("state/0/0/SSTs/3.sst"),
        ("--to", "2"),
        ("Cannot restore batch 2 of", "it lacks state/0/0/SSTs/3.sst", "checkpoints APP --verify"),
    ),
    "a snapshot is damaged": (damaged, ("--to", "5"), ("6.zip: it is damaged",)),
    "the whole checkpoint is lost": (
        gone,
        ("--to", "2"),
        ("Cannot rewind query 'counts' to batch 2", "--no-state"),
    ),
    "before the first": (nothing, ("--to", LONG_AGO), ("was committed by", "can be restored: 0 (")),
    "no time": (nothing, ("--to", "teatime"), ("Cannot rewind to 'teatime'", "Write a batch's number")),
    "an unknown savepoint": (
        kept,
        ("--savepoint", "other"),
        ("Cannot find savepoint 'other' of 'shop'", "There are: kept."),
    ),
    "a savepoint that lost a file": (
        kept_and_lost,
        ("--savepoint", "kept"),
        ("savepoint 'kept' holds no batch of it that counts, or one that can't be restored",),
    ),
    "nothing to keep": (
        without_log,
        ("--new-savepoint",),
        ("none of its batches can be restored",),
    ),
    "a rewind is open": (open_operation(OPEN), ("--to", "2"), ("is not completed", "--resume")),
    "an undoing is open": (open_operation(UNDOING), ("--no-state",), ("is not completed", "--resume")),
    "the run was abandoned": (abandoned, ("--to", "2"), ("Cannot find a live run of 'shop'",)),
    "another candidate": (
        nothing,
        ("--to", "2", "--set", "sources.clicks.selected=past"),
        ("it read {'clicks': 'live'}, now {'clicks': 'past'} is selected",),
    ),
    "events may be passed over": (
        nothing,
        ("--to", "2", "--set", "clusters.main={bootstrap: stack, options: {failOnDataLoss: false}}"),
        ("failOnDataLoss", "never passed over"),
    ),
    "two points": (nothing, ("--to", "2", "--no-state"), ("give one of --to",)),
    "no point": (nothing, (), ("give one of --to",)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_and_nothing_changed(shop: Shop, name: str) -> None:
    prepare, words, told = REFUSALS[name]
    prepare(shop)
    before = shop.everything()
    for more in ((), ("--dry-run",)):
        ended = shop.call("rewind", *words, "--yes", *more)
        assert ended.exit_code == 2, ended.output
        for text in told:
            assert text in " ".join(ended.output.split()), ended.output
        assert shop.everything() == before


def test_a_run_that_is_going_and_a_person_who_can_t_be_asked(shop: Shop) -> None:
    with shop.store.claim(["live shop/counts"], "run 'shop'") as claim:
        claim.begin(RUN)
        before = shop.everything()
        for words in (("--to", "2"), ("--new-savepoint",), ("--no-state",)):
            ended = shop.call("rewind", *words, "--yes")
            assert (ended.exit_code, f"run {RUN} is going" in ended.output) == (2, True), ended.output
        assert shop.everything() == before
        claim.end(State.STOPPED)
    before = shop.everything()
    for words in (("--to", "2"), ("--new-savepoint",), ("--no-state",)):
        ended = shop.call("rewind", *words)
        assert (ended.exit_code, "Cannot ask for consent" in ended.output) == (2, True), ended.output
    assert shop.everything() == before, "no savepoint was taken"


def rewound(shop: Shop, **progress: Any) -> str:
    """The run was rewound; answers the operation."""
    plan = RewindPlan("live_20261102_000000_cd34", "shop", RUN, ())
    made = Run(
        plan.operation, "shop", Kind.LIVE, str(shop.folder), spec={**shop.store.run(RUN).spec, "rewind": plan.as_json()}
    )
    shop.store.fork_runs([Fork(replace(made, progress=progress), RUN, {"counts": 2})])
    return plan.operation


def test_times_are_those_of_the_commits_also_where_files_were_copied(shop: Shop) -> None:
    copied = Home(shop.home.root.with_name("copied"))
    shutil.copytree(shop.home.root, copied.root)
    told = [json.loads(shop.call("checkpoints", "--json", home=home).stdout) for home in (shop.home, copied)]
    assert told[0] == told[1]
    assert [one["batch"] for one in told[0]] == list(range(BATCHES))
    assert [one["committed"] for one in told[0]] == sorted({one["committed"] for one in told[0]})


def test_a_savepoint_of_an_older_batch_says_so_and_the_dry_run_too(shop: Shop) -> None:
    lost("state/0/0/6.zip")(shop)
    lost("state/0/0/5.changelog")(shop)
    for more, key in ((("--dry-run",), "would_take"), ((), "name")):
        ended = CliRunner(env={"REKAPPA_HOME": str(shop.home.root)}).invoke(
            main, ["savepoint", "take", str(shop.folder), "old", "--json", *more]
        )
        assert ended.exit_code == 0, ended.output
        told = json.loads(ended.stdout)
        assert (told[key], told["batches"]) == ("old", {"counts": 3})
        assert "batch 3 is kept, not the newest: batch 4 lacks state/0/0/5.changelog" in ended.stderr
    without_log(shop)
    for options in ((), ("--dry-run",)):
        ended = CliRunner(env={"REKAPPA_HOME": str(shop.home.root)}).invoke(
            main, ["savepoint", "take", str(shop.folder), *options]
        )
        assert (ended.exit_code, "no batch that can be restored" in ended.output) == (2, True), ended.output


def test_one_savepoint_of_a_name_is_taken_at_a_time(shop: Shop) -> None:
    words = ["savepoint", "take", str(shop.folder), "mark"]
    with shop.store.claim([lease_of("shop", "mark")], "take it"):
        ended = CliRunner(env={"REKAPPA_HOME": str(shop.home.root)}).invoke(main, words)
        assert (ended.exit_code, "Cannot take savepoint 'mark'" in ended.output) == (2, True), ended.output
        assert not shop.home.savepoints("shop").names()
    assert CliRunner(env={"REKAPPA_HOME": str(shop.home.root)}).invoke(main, words).exit_code == 0


def test_a_savepoint_without_a_name_that_was_meant_to_have_one(shop: Shop) -> None:
    for more in ((), ("--dry-run",)):
        ended = CliRunner(env={"REKAPPA_HOME": str(shop.home.root)}).invoke(
            main, ["savepoint", "take", str(shop.folder), "", *more]
        )
        assert (ended.exit_code, "Cannot name a savepoint ''" in ended.output) == (2, True), ended.output
    assert not shop.home.savepoints("shop").names()


def test_nothing_to_resume_or_undo_is_told_by_the_store_alone(shop: Shop) -> None:
    """Named by the app or by the operation."""

    def refused(words: str, *command: str) -> None:
        before = shop.everything()
        ended = CliRunner(env={"REKAPPA_HOME": str(shop.home.root)}).invoke(main, ["rewind", *command])
        assert (ended.exit_code, words in " ".join(ended.output.split())) == (2, True), ended.output
        assert shop.everything() == before

    app = str(shop.folder)
    refused("Cannot resume a rewind of 'shop': none is open", "--resume", app)
    refused("its run live_20261101_000000_ab12 was not rewound", app, "--undo")
    refused("that run was not made by one", "--resume", RUN)
    refused("Cannot find", "--resume", "live_20261102_000000_cd34")
    operation = rewound(shop)
    refused("none is open", "--resume", operation)
    with shop.store.claim(["live shop/counts"], "run 'shop'") as claim:
        claim.begin(operation)
        refused(f"run {operation} is going", operation, "--undo")
        claim.end(State.STOPPED)
    # It was rewound once more since, which makes the other one no longer the last.
    plan = RewindPlan("live_20261103_000000_ef56", "shop", operation, ())
    spec = {**shop.store.run(operation).spec, "rewind": plan.as_json()}
    again = Run(plan.operation, "shop", Kind.LIVE, str(shop.folder), spec=spec, progress={REWIND: OPEN})
    shop.store.fork_runs([Fork(again, operation, {"counts": 1})])
    for option in ("--resume", "--undo"):
        refused(f"the last rewind of 'shop' is {again.id}", option, operation)


def test_nothing_has_run(shop: Shop, tmp_path: Path) -> None:
    ended = CliRunner(env={"REKAPPA_HOME": str(tmp_path / "none")}).invoke(main, ["rewind", str(shop.folder), "--to=1"])
    assert ended.exit_code == 2
    assert not (tmp_path / "none").exists()
