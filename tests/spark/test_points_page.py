"""The buttons of the Checkpoints page, each with the command that it names: savepoint, look, rewind in its four ways,
undo, bootstrap; and the Advice page. The commands run in this process, on the tests' own Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from console.site_of import form_key
from fastapi.testclient import TestClient
from project import Project
from pyspark.sql import SparkSession

from rekappa.cli.main import main
from rekappa.console.app import make_app
from rekappa.console.context import Console
from rekappa.console.observed import Observation, Observed
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.record import Kind
from rekappa.store.runs import RunStore
from rekappa.store.task import Task, TaskState, new_task_id
from rekappa.tasks.files import answer_file

CODE = """
from rekappa import App

app = App("{name}")


@app.job
def seen(events):
    return events.select("id", "event_ts")
"""
CONFIG = """
app: {name}
sources:
  events:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: {name}, max_records_per_batch: 4}}}}
sinks:
  seen: {{type: iceberg, table: lake.points.{name}, event_time: event_ts}}
profiles:
  live: {{trigger: 100 ms, spark.sql.shuffle.partitions: 2}}
"""


class InThisProcess(Observed):
    """Asks the commands themselves, each time anew."""

    def ask(self, *words: str, **rest: Any) -> Observation:
        told = called(self._home, words)
        return Observation(json.loads(told.stdout) if told.exit_code == 0 else None)


def called(home: Home, words: Sequence[str]) -> Any:
    words = [*words, *(() if "--json" in words else ("--json",))]
    return CliRunner().invoke(main, words, env={"REKAPPA_HOME": str(home.root)})


@dataclass
class Page:
    project: Project
    client: TestClient
    spark: SparkSession

    def post(self, path: str, **fields: str) -> str:
        """Send a form, and say yes where it asks; answers what was asked."""
        data = {"form_key": form_key(self.client), **fields}
        first = self.client.post(f"/apps/{self.project.name}/{path}", data=data)
        assert first.status_code == 200, first.text
        if "Yes, " not in first.text:
            return first.text
        done = self.client.post(f"/apps/{self.project.name}/{path}", data={**data, "sure": "yes"})
        assert done.status_code == 200, done.text
        return first.text

    def get(self, path: str) -> str:
        return self.client.get(f"/apps/{self.project.name}/{path}").text

    def last(self) -> Task:
        return Desk.open(self.project.home).tasks(app=self.project.name)[0]

    @property
    def rows(self) -> int:
        self.spark.catalog.refreshTable(f"lake.points.{self.project.name}")
        return self.spark.table(f"lake.points.{self.project.name}").count()


@pytest.fixture
def page(
    tmp_path: Path, home: Home, broker: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Page]:
    name = f"points_{uuid4().hex[:6]}"
    config = CONFIG.format(name=name)
    project = Project.make(tmp_path / name, home, broker, CODE.format(name=name), config)

    def started(home: Home, words: Sequence[str], **told: Any) -> Task:
        """The command to its end, in this process."""
        host, desk = this_host(), Desk.open(home)
        named = {key: told[key] for key in ("who", "face", "app", "run", "kept")}
        made = Task(new_task_id(), tuple(words), folder=str(tmp_path), host=host.name, machine=host.machine, **named)
        desk.add_task(made)
        if told["what"]:
            desk.tell(told["who"], told["face"], told["what"], told["app"], told["run"], task=made.id)
        done = called(home, words)
        home.made().logs.mkdir(exist_ok=True)
        answer_file(home, made.id).write_text(done.stdout)
        state = TaskState.DONE if done.exit_code == 0 else TaskState.FAILED
        return desk.change_task(
            made.id, state=state, exit_code=done.exit_code, error=done.stderr[-2000:], now=("ended",)
        )

    monkeypatch.setattr("rekappa.operations.changes.start_task", started)
    console = Console(home, tmp_path, InThisProcess(home, tmp_path), "owner", "anna")
    with TestClient(make_app(console), base_url="http://127.0.0.1") as client:
        client.get("/login?token=owner")
        yield Page(project, client, spark)


def produce(broker: str, topic: str, ids: range) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for number in ids:
        event = {"id": number, "event_ts": "2026-11-01T00:00:00Z"}
        producer.produce(topic, json.dumps(event).encode(), partition=0)
    assert producer.flush(60) == 0


def test_every_way_to_restart_a_job_is_a_button_that_works(page: Page) -> None:
    project, name = page.project, page.project.name
    assert "No checkpoints yet" in page.get("checkpoints")
    create_topics(project.broker, [name], partitions=1)
    produce(project.broker, name, range(20))
    first = project.live()
    assert page.rows == 20

    page.post("savepoint", name="mark")
    shown = page.get("checkpoints")
    assert "mark" in shown
    assert "Rewind to batch 1" in shown
    produce(project.broker, name, range(20, 24))
    project.live()
    assert page.rows == 24

    # An existing checkpoint: what it would do first, then it is done, and taken back.
    page.post("rewind", to="1", look="yes")
    assert page.last().state is TaskState.DONE, page.last().error
    looked = page.get("checkpoints")
    assert "batch 1" in looked
    assert ">16<" in looked.replace("\n", ""), "the rows that would be taken out"
    assert page.rows == 24
    asked = page.post("rewind", to="1")
    assert f"rekappa rewind {project.folder} --to=1 --yes --json" in asked
    assert page.rows == 8
    assert RunStore.open(project.home).page(1, app=name, kind=Kind.LIVE)[0].id != first.id
    page.post("rewind", undo="yes")
    assert (page.last().state, page.rows) == (TaskState.DONE, 24), page.last().error

    # An existing savepoint, one taken now, and no state.
    page.post("rewind", savepoint="mark")
    assert (page.last().state, page.rows) == (TaskState.DONE, 20), page.last().error
    project.live()
    assert page.rows == 24
    page.post("rewind", new="yes")
    assert (page.last().state, page.rows) == (TaskState.DONE, 24), page.last().error
    page.post("rewind", nothing="yes")
    assert (page.last().state, page.rows) == (TaskState.DONE, 0), page.last().error
    project.live()
    assert page.rows == 24

    # What is refused is told on the page, and changes nothing.
    page.post("rewind", to="999", look="yes")
    assert page.last().state is TaskState.FAILED
    assert "there is no such batch" in page.get("checkpoints")
    deeds = [(one.what, one.who, one.face) for one in Desk.open(project.home).deeds(app=name)]
    assert deeds.count(("rewind", "anna", "console")) == 4
    assert ("undo rewind", "anna", "console") in deeds
    assert ("savepoint", "anna", "console") in deeds

    # Advice on the same app: it keeps no state, and has no archive to backfill from.
    page.post("advise", start="2026-11-01T00:00Z", end="2026-11-01T01:00Z", trouble="wrong")
    assert page.last().state is TaskState.DONE, page.last().error
    assert "It keeps no state: only what it wrote in the window is wrong." in page.get("advise")
