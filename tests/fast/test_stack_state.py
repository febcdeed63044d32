"""What the stack remembers, and telling its process from a stranger with the same pid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from rekappa.cli.stack import down, status, up
from rekappa.errors import StackError
from rekappa.home import Home
from rekappa.stack.process import Process, birth_of, detach
from rekappa.stack.settings import server_properties
from rekappa.stack.state import Record, read_record, stack_state, write_record

STARTED = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path) -> Home:
    home = Home(tmp_path / ".rekappa")
    home.stack.mkdir(parents=True)
    return home


def me() -> Process:
    return Process(os.getpid(), birth_of(os.getpid()) or "")


def test_a_record_reads_back_as_written(place: Home) -> None:
    record = Record(9092, 9093, "cluster", me(), STARTED)
    write_record(place, record)
    assert read_record(place) == record
    write_record(place, replace(record, process=None, started=None))
    assert read_record(place) == Record(9092, 9093, "cluster")


def test_a_live_process_is_a_running_stack(place: Home) -> None:
    write_record(place, Record(9092, 9093, "cluster", me(), STARTED))
    state = stack_state(place)
    assert state is not None
    assert (state.bootstrap, state.pid, state.started) == ("127.0.0.1:9092", os.getpid(), STARTED)


def test_a_stranger_with_the_same_pid_is_not_our_broker(place: Home) -> None:
    write_record(place, Record(9092, 9093, "cluster", Process(os.getpid(), "another boot/1"), STARTED))
    assert stack_state(place) is None


def test_a_stranger_is_never_stopped() -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert Process(stranger.pid, "another boot/1").stop(timedelta(seconds=1))
        assert stranger.poll() is None
    finally:
        stranger.communicate(b"\n")


def test_a_detached_process_is_followed_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "it's a log"
    process = detach([sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"], log)
    assert process.alive()
    assert process.stop(timedelta(seconds=10))
    assert not process.alive()


def test_never_started_is_no_record(place: Home) -> None:
    assert read_record(place) is None
    assert stack_state(place) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1, "port": 1}'])
def test_a_damaged_record_is_refused_with_its_name(place: Home, text: str) -> None:
    (place.stack / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"stack\.json"):
        read_record(place)


def test_a_newer_record_is_refused_with_both_versions(place: Home) -> None:
    (place.stack / "stack.json").write_text('{"version": 7}')
    with pytest.raises(StackError, match="version 7, this rekappa knows up to 1"):
        read_record(place)


def test_the_broker_keeps_what_is_placed_in_the_past() -> None:
    lines = server_properties(1, 2, Path("/data")).splitlines()
    assert "log.retention.ms=-1" in lines
    assert f"log.message.timestamp.before.max.ms={2**63 - 1}" in lines


def test_status_as_data(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKAPPA_HOME", str(place.root))

    def broker() -> object:
        answer = CliRunner().invoke(status, ["--json"])
        return json.loads(answer.stdout)["broker"]

    assert broker() == "stopped"
    write_record(place, Record(9092, 9093, "cluster", me(), STARTED))
    assert broker() == "running"
    write_record(place, Record(9092, 9093, "cluster", Process(os.getpid(), "another boot/1"), STARTED))
    assert broker() == "crashed"


def test_dry_runs_change_nothing(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKAPPA_HOME", str(place.root))
    assert "would start the broker" in CliRunner().invoke(up, ["--dry-run"]).stdout
    assert "nothing to do" in CliRunner().invoke(down, ["--dry-run"]).stdout
    assert list(place.root.rglob("*")) == [place.stack]
