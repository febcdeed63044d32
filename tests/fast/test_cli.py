"""The command line's frame: help, suggestions, refusals, surprises; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekappa import __version__
from rekappa.cli import main as frame
from rekappa.cli.main import COMMANDS, Entry, main
from rekappa.cli.reference import commands, reference
from rekappa.errors import RunError, SinkError

APP = """\
from rekappa import App

app = App("shop")


@app.job
def totals(clicks):
    return clicks
"""
CONFIG = """\
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {live: {type: kafka, topic: clicks}}
sinks:
  totals: {type: "null"}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "rekappa.yaml").write_text(CONFIG)
    (tmp_path / "shop" / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    monkeypatch.delenv("REKAPPA_DEBUG", raising=False)
    return tmp_path / "shop"


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_help_lists_every_command_under_its_section() -> None:
    told = call("--help")
    assert told.exit_code == 0
    for name in main.list_commands(click.Context(main)):
        assert f"  {name} " in told.output
        assert COMMANDS[name].section + ":" in told.output
    assert call("--version").output.strip() == f"rekappa, version {__version__}"


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_help_and_json(words: tuple[str, ...]) -> None:
    told = call(*words, "--help")
    assert told.exit_code == 0, told.output
    assert told.output.startswith("Usage:")
    if "COMMAND [ARGS]" not in told.output:
        assert "--json" in told.output


def test_the_reference_page_is_the_commands_own() -> None:
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    assert page.read_text() == reference(), "run  python -m rekappa.cli.reference > docs/cli.md"


def test_an_unknown_command_suggests_the_nearest() -> None:
    told = call("confg")
    assert told.exit_code == 2
    assert told.stderr == "error: There is no command 'confg'\nhint: Did you mean `rekappa config`?\n"
    assert told.stdout == ""


def test_a_command_whose_module_is_missing_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "later", Entry("Apps", "rekappa.cli.later:later", "Not yet."))
    assert "later" not in call("--help").output
    assert call("later").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RunError("Cannot find run 'x'", hint="List them: rekappa runs"), 2, "error: Cannot find run 'x'\nhint: List"),
        (SinkError("Cannot write"), 1, "error: Cannot write\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("a\nb"), 1, "error: unexpected ZeroDivisionError: a b\nhint: The details are in "),
    ],
)
def test_errors_are_told_not_thrown(
    shop: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr("rekappa.cli.config.config", fails)
    told = call("config")
    assert told.exit_code == code
    assert told.stderr.startswith(words)
    assert "Traceback" not in told.output


def test_what_is_known_of_sparks_errors_is_no_surprise(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark  # noqa: F401  # As it is once Spark was asked for something.

    java = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})

    @click.command()
    @click.argument("said")
    def fails(said: str) -> None:
        raise java(f"An error occurred while calling o49.tableExists.\n: {said}\n\tat a.B.c(B.java:1)")

    monkeypatch.setattr("rekappa.cli.config.config", fails)
    told = call("config", "org.apache.iceberg.exceptions.RESTException: Error occurred while processing GET request")
    assert (told.exit_code, told.stderr.startswith("error: Cannot go on: The Iceberg catalog does not answer: ")) == (
        1,
        True,
    )
    assert "catalogs.NAME.uri" in told.stderr
    assert call("config", "java.lang.IllegalStateException: odd").stderr.startswith("error: unexpected Py4JJavaError")


def test_a_surprise_is_kept_in_a_file_and_shown_on_demand(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fails() -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("rekappa.cli.config.config", fails)
    (shop.parent / ".rekappa").mkdir()
    call("config")
    (log,) = (shop.parent / ".rekappa" / "logs").iterdir()
    assert "Traceback" in log.read_text()
    monkeypatch.setenv("REKAPPA_DEBUG", "1")
    assert "Traceback" in call("config").stderr


def test_config_is_shown_as_text_and_as_json(shop: Path) -> None:
    assert "shop/rekappa.yaml is fine" in call("config", "shop").stdout
    plain = json.loads(call("config", "shop", "--json").stdout)
    assert plain["queries"] == [
        {"query": "totals", "job": "totals", "output": "totals", "sink": "totals", "sources": ["clicks"]}
    ]
    assert plain["config"]["sources"]["clicks"]["selected"] == "live"
    rows = json.loads(call("config", "shop", "--explain", "--json", "--set", "archive.evolve=false").stdout)
    by_key = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert by_key["archive.evolve"] == (False, "--set archive.evolve")
    assert by_key["sinks.totals.type"] == ("null", "shop/rekappa.yaml:8")
    assert by_key["entry"] == ("app.py", "default")
    told = call("config", "shop", "--explain")
    assert "shop/rekappa.yaml:8" in told.stdout


def test_config_refuses_with_a_hint(shop: Path) -> None:
    told = call("config", "shop", "--set", "sources.clicks.selected=lives")
    assert told.exit_code == 2
    assert "hint: Did you mean 'live'?" in told.stderr
    assert told.stdout == ""


words = st.sampled_from(
    [*COMMANDS, "--json", "--dry-run", "--set", "--start", "--end", "-x", "nope", "2026-99", "="]
) | st.text(max_size=12)


@given(
    first=st.sampled_from(["config", "new", "runs", "validate", "undo", "plan", "cost", ""]),
    rest=st.lists(words, max_size=5),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_words_are_answered_without_a_traceback(shop: Path, first: str, rest: list[str]) -> None:
    if first == "new":
        rest = [*rest, "--dry-run"]
    told = call(*([first] if first else []), *[word for word in rest if word not in frame.COMMANDS or first])
    assert told.exit_code in (0, 1, 2), told.output
    assert "Traceback" not in told.output
    assert "error: unexpected" not in told.stderr, told.stderr


@pytest.mark.parametrize("words", [["config", "shop"], ["config", "shop", "--explain"], ["run", "shop", "--dry-run"]])
def test_what_an_app_prints_stays_out_of_the_json(shop: Path, words: list[str]) -> None:
    app = shop / "app.py"
    app.write_text("print('hello from the app')\n" + app.read_text())
    told = call(*words, "--json")
    assert told.exit_code == 0, told.output
    json.loads(told.stdout)
    assert "hello from the app" in told.stderr
    assert "hello from the app" in call(*words).stdout


def test_a_project_folder_that_can_not_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / "file"))
    told = call("up", "--dry-run")
    assert told.exit_code == 2, told.stderr
    assert told.stderr.startswith(f"error: Cannot use {tmp_path / 'file'}")
    assert "REKAPPA_HOME" in told.stderr
    assert "unexpected" not in told.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--job", "nojob"), "Cannot find job 'nojob' in app 'take_rate'"),
        (("--sink", "nosink"), "Cannot find sink 'nosink' in app 'take_rate'"),
        (("--warm-up", "nojob=2h"), "Cannot find job 'nojob'"),
        (("--live-run", "nope"), "Cannot find"),
    ],
)
def test_names_that_are_not_there_are_told_before_spark_starts(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    (tmp_path / ".rekappa").mkdir()
    (tmp_path / ".rekappa" / "catalog.db").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    example = str(Path(__file__).parents[2] / "examples" / "take_rate")
    for command in ("plan", "backfill"):
        told = call(command, example, "--start", "2026-11-01", "--end", "2026-11-02", *words)
        assert told.exit_code == 2, told.stderr
        assert said in told.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cost", "shop", "--days", "nan"), "'nan' is no number"),
        (("cost", "shop", "--days", "inf"), "is not in the range"),
        (("validate", "last", "--tolerance", "nan"), "'nan' is no number"),
        (("validate", "last", "--tolerance", "5"), "is not in the range"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(words: tuple[str, ...], said: str) -> None:
    told = call(*words)
    assert told.exit_code == 2
    assert said in told.stderr
