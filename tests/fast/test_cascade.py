"""Apps downstream of a rewind, by their configurations and their processes: who follows, what is stopped, how all are
started again, and what is refused. Spark is not asked by any of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rekappa.checkpoints.restarts import Leg
from rekappa.cli.rewind import _start_detached, _stop_chain
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.recovery.chain import chain_of
from rekappa.recovery.live_app import LiveApp
from rekappa.recovery.resets.contract import Abandoned
from rekappa.recovery.resets.topics import TopicReset
from rekappa.sinks.kafka import KafkaSink
from rekappa.sinks.registry import open_sink
from rekappa.store.kept import keep_code
from rekappa.store.record import Kind, Run, Start, State
from rekappa.store.runs import RunStore

NOWHERE = "127.0.0.1:1"
CODE = """
from rekappa import App

app = App("{name}")

@app.job
def out(events):
    return events
"""
CONFIG = """
app: {name}
clusters: {{main: {{bootstrap: "{address}"}}}}
sources:
  events:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    selected: {selected}
    candidates:
      live: {{type: kafka, topic: {reads}}}
      past: {{type: iceberg, table: lake.shop.{reads}, follow: true}}
sinks:
  out: {sink}
"""
GOING = """
import signal, sys
from pathlib import Path
from rekappa.home import Home
from rekappa.store.record import State
from rekappa.store.runs import RunStore

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with RunStore.open(Home(Path(sys.argv[1]))).claim(["live second/out"], "run it") as claim:
    claim.begin(sys.argv[2])
    print("going", flush=True)
    signal.sigwait([signal.SIGTERM])
    claim.end(State.STOPPED)
"""


@dataclass(frozen=True)
class Two:
    """Two apps with a live run each; the second reads what the first writes."""

    folder: Path
    home: Home

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.home)

    def app(self, name: str, *overrides: str) -> LiveApp:
        loaded = load(self.folder / name, overrides=overrides)
        return LiveApp(None, self.home, loaded, load_app(loaded))  # type: ignore[arg-type]

    def write(self, name: str, reads: str, sink: str, selected: str = "live") -> None:
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "app.py").write_text(CODE.format(name=name))
        told = CONFIG.format(name=name, reads=reads, sink=sink, selected=selected, address=NOWHERE)
        (self.folder / name / "rekappa.yaml").write_text(told)

    @contextmanager
    def going(self) -> Iterator[subprocess.Popen[str]]:
        """While another process is at work on the second one's run."""
        words = [sys.executable, "-c", GOING, str(self.home.root), "live_second"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "going\n"
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setattr("rekappa.recovery.live_app.live_session", lambda *_: None)
    made = Two(tmp_path, Home(tmp_path / ".rekappa").made())
    made.write("first", "clicks", "{type: kafka, topic: enriched}")
    made.write("second", "enriched", "{type: 'null'}")
    for name in ("first", "second"):
        made.store.create(Run(f"live_{name}", name, Kind.LIVE, str(tmp_path / name), state=State.STOPPED))
    return made


def test_runs_that_are_going_are_stopped_once_tried_and_agreed_to(two: Two) -> None:
    seen: list[str] = []

    def refused(live: LiveApp) -> None:
        raise RunError(f"Cannot rewind {live.name}: its state does not fit")

    with two.going() as process:
        with pytest.raises(RunError, match="its state does not fit"):
            _stop_chain(two.app("first"), yes=True, tried=refused)
        with pytest.raises(RunError, match="Cannot ask for consent"):
            _stop_chain(two.app("first"), yes=False, tried=lambda live: seen.append(live.name))
        assert seen == ["first"]
        assert process.poll() is None
        assert two.store.run("live_second").state is State.RUNNING
        _stop_chain(two.app("first"), yes=True, tried=lambda _: None)
        assert process.wait(60) == 0
    assert [two.store.run(f"live_{name}").state for name in ("first", "second")] == [State.STOPPED] * 2


def test_each_is_started_detached_with_the_choices_of_its_run(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[tuple[str, ...], dict[str, Any]]] = []

    def note(home: Home, words: tuple[str, ...], **told: Any) -> Run:
        begun.append((words, told))
        return two.store.run("live_second")

    monkeypatch.setattr("rekappa.operations.changes.start_task", note)
    chosen = "sources.events.candidates.live.topic=other"
    run = Run("live_9", "second", Kind.LIVE, str(two.folder / "second"), spec={"overrides": [chosen]})
    assert _start_detached(two.home, run) == "second runs as live_second"
    ((words, told),) = begun
    assert words == ("run", str(two.folder / "second"), f"--set={chosen}", "--json")
    assert (told["app"], told["kept"]) == ("second", True), "in a process that is started again when it fails"


def selected_past(two: Two) -> None:
    two.write("second", "enriched", "{type: 'null'}", selected="past")


def sends_back(two: Two) -> None:
    two.write("second", "enriched", "{type: kafka, topic: clicks}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (selected_past, r"app 'second' follows the archive of its topic 'enriched'"),
        (sends_back, r"comes back to its writer, .*first/out -> second/out"),
    ],
)
def test_readers_that_can_t_be_taken_along_are_refused(two: Two, change: Callable[[Two], None], words: str) -> None:
    assert list(chain_of(two.app("first")).apps) == ["first", "second"]
    change(two)
    with pytest.raises(RunError, match=words):
        chain_of(two.app("first"))


def unreadable(two: Two) -> None:
    (two.folder / "second" / "rekappa.yaml").write_text("app: second\nclusters: {main: {bootstrap: '${NOT_SET_HERE}'}}")


def away(two: Two) -> None:
    """It was begun by another machine of the team: its folder is there, its code in the store."""
    start = Start("live_second", "out", 0, keep_code(two.home, two.folder / "second"))
    two.store.record_start(start)
    (two.folder / "second").rename(two.folder / "elsewhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (unreadable, r"Cannot tell whether app 'second' reads topic 'enriched': .*NOT_SET_HERE"),
        (away, r"app 'second' reads its topic 'enriched', and its folder .* is not on this machine"),
    ],
)
def test_a_reader_is_never_passed_over_because_it_can_t_be_looked_at(
    two: Two, change: Callable[[Two], None], words: str
) -> None:
    with two.going():
        change(two)
        with pytest.raises(RunError, match=words):
            chain_of(two.app("first"))


def test_an_app_whose_folder_is_gone_and_that_does_not_run_reads_nothing(two: Two) -> None:
    (two.folder / "second").rename(two.folder / "kept")
    assert list(chain_of(two.app("first")).apps) == ["first"]


def test_without_the_lineage_topic_nothing_is_rewound(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekappa.fence.topic.PATIENCE", 0.5)
    app = two.app("first")
    sink = open_sink("out", app.loaded.config, two.home)
    assert isinstance(sink, KafkaSink)
    legs = (Leg("live_first", 3, 9),)
    gone = Abandoned(app.spark, "first", "live_9", "out", "", "out", legs, (), datetime.now(UTC))
    with pytest.raises(RunError, match="can't be fenced off without topic 'rekappa-lineage': Cannot read") as refused:
        TopicReset(gone, sink).look()
    assert "cleanup.policy=compact" in (refused.value.hint or "")
