"""Code and configuration brought together: what fits, and what is said when it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rekappa.config.bind import Query, load_app, queries, visiting_app
from rekappa.config.load import load
from rekappa.errors import AppError

CONFIG = """\
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {live: {type: kafka, topic: clicks}}
  views:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {live: {type: kafka, topic: views}}
sinks:
  totals: {type: "null"}
  again: {type: "null", job: totals}
  rates: {type: "null"}
  raw: {type: "null"}
"""
CODE = """\
from rekappa import App

app = App("shop")


@app.job(sinks=["totals", "rates"])
def both(clicks, views):
    return {"totals": clicks, "rates": views}


@app.job
def raw(clicks):
    return clicks
"""


def bound(folder: Path, code: str = CODE, config: str = CONFIG) -> tuple[Query, ...]:
    (folder / "rekappa.yaml").write_text(config)
    (folder / "app.py").write_text(code)
    loaded = load(folder, environ={})
    return queries(loaded.config, load_app(loaded))


def refused(folder: Path, code: str = CODE, config: str = CONFIG) -> AppError:
    with pytest.raises(AppError) as caught:
        bound(folder, code, config)
    return caught.value


def test_one_query_per_output_and_sink(tmp_path: Path) -> None:
    assert bound(tmp_path) == (
        Query("totals", "both", "totals", "totals"),
        Query("again", "both", "totals", "again"),
        Query("rates", "both", "rates", "rates"),
        Query("raw", "raw", "raw", "raw"),
    )


@pytest.mark.parametrize(
    ("old", "new", "place", "words", "hint"),
    [
        ("def raw(clicks)", "def raw(cliks)", "app.py:11", "reads 'cliks', which is no source", "'clicks'"),
        ('"rates"]', '"ratios"]', "2 problems", "sink 'rates' takes 'rates', which no job makes", None),
        ("def raw", "def rawr", "2 problems", "makes 'rawr', which no sink takes", None),
        ('["totals", "rates"]', '["totals", "rates", "raw"]', "app.py:11", "both make 'raw'", None),
        ('App("shop")', 'App("shoq")', "rekappa.yaml:1", "App('shoq')", "same name"),
        ('app = App("shop")', "", "app.py:6", "NameError", None),
        ("    return clicks\n", "    return clicks\n1 / 0\n", "app.py:14", "ZeroDivisionError: division by zero", None),
        ("    return clicks\n", "    return (\n", "app.py:13", "SyntaxError", None),
        ("    return clicks\n", "    return clicks\nimport sys; sys.exit(3)\n", "app.py:14", "SystemExit: 3", None),
        ("@app.job\n", "@app.job\ndef both(views): ...\n@app.job\n", "app.py:11", "two jobs named 'both'", "Rename"),
        ("import App", "import App, nothing", "app.py:1", "ImportError", None),
    ],
)
def test_code_that_does_not_fit_is_refused(
    tmp_path: Path, old: str, new: str, place: str, words: str, hint: str | None
) -> None:
    assert old in CODE
    error = refused(tmp_path, CODE.replace(old, new, 1))
    assert place in error.message
    assert words in error.message
    assert hint is None or hint in str(error.hint)


def test_an_error_in_a_neighbour_names_the_neighbour(tmp_path: Path) -> None:
    (tmp_path / "bind_neighbour_that_fails.py").write_text("\n\nraise ValueError('no')\n")
    error = refused(tmp_path, "import bind_neighbour_that_fails\n" + CODE)
    assert "bind_neighbour_that_fails.py:3: ValueError: no" in error.message


def test_two_apps_may_have_neighbours_of_one_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bind_shared_name.py").write_text(f"word = {name!r}\n")
        code = f"from bind_shared_name import word\nassert word == {name!r}\n" + CODE
        assert bound(tmp_path / name, code)


def test_a_sink_of_no_job_names_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, config=CONFIG.replace("job: totals", "job: total"))
    assert "rekappa.yaml:13" in error.message
    assert "'totals'" in str(error.hint)


def test_no_entry_file_and_no_app(tmp_path: Path) -> None:
    error = refused(tmp_path, config=CONFIG + "entry: ap.py\n")
    assert "ap.py: there is no such file" in error.message
    assert "'app.py'" in str(error.hint)
    assert "Cannot find an app" in refused(tmp_path, "x = 1\n").message


def test_the_file_is_read_anew_each_time_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    bound(tmp_path)
    assert refused(tmp_path, CODE.replace("(clicks, views)", "(clicks, wiews)")).message
    assert bound(tmp_path)
    assert not (tmp_path / "__pycache__").exists()


def test_what_the_app_defines_travels_to_a_process_that_can_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "bind_neighbour.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "rekappa.yaml").write_text(CONFIG)
    text = "from dataclasses import dataclass\nfrom bind_neighbour import twice\n" + CODE
    text += "\n\n@dataclass\nclass Box:\n    held: 'int'\n    def twice(self):\n        return twice(self.held)\n"
    (tmp_path / "app.py").write_text(text + "\n\napp.box = Box(21)\n")
    app = load_app(load(tmp_path, environ={}))
    from pyspark import cloudpickle

    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(app.box))  # type: ignore[attr-defined, no-untyped-call]
    reader = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).twice())"
    answer = subprocess.run([sys.executable, "-c", reader, str(sent)], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "42"


def test_two_versions_of_an_app_do_not_see_each_other(tmp_path: Path) -> None:
    """Same names of files and packages, also for what is imported only when a job is called."""
    entry = (
        'from rekappa import App\nimport near\nfrom pack.part import VALUE\napp = App("twin")\n'
        "@app.job\ndef out(events):\n    import later\n    return near.NAME + VALUE + later.NAME\n"
    )
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "pack").mkdir(parents=True)
        (folder / "app.py").write_text(entry)
        (folder / "near.py").write_text(f"NAME = '{name} '\n")
        (folder / "later.py").write_text(f"NAME = '{name}'\n")
        (folder / "pack" / "__init__.py").write_text("")
        (folder / "pack" / "part.py").write_text(f"VALUE = '{name} '\n")
        (folder / "rekappa.yaml").write_text(
            "app: twin\nsources:\n  events:\n    schema: id BIGINT, at TIMESTAMP\n    event_time: at\n"
            "    candidates: {live: {type: kafka, topic: t}}\nsinks:\n  out: {type: console}\n"
        )
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    first = load_app(one)
    path = list(sys.path)
    with visiting_app(two) as second:
        assert second.jobs["out"].body(None) == "two two two"
    assert sys.path == path
    assert first.jobs["out"].body(None) == "one one one"
    with visiting_app(two) as second:
        assert second.jobs["out"].body(None) == "two two two"
    assert first.jobs["out"].body(None) == "one one one"
    assert sys.modules["later"].NAME == "one"
    for name in ("near.py", "pack/part.py"):
        file = tmp_path / "one" / name
        file.write_text(file.read_text().replace("one", "changed"))
    again = load_app(one)
    assert again.jobs["out"].body(None) == "changed changed one", "what has changed since is read again"
