"""`rekappa new`: refuses before it touches anything, and what it makes fits together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rekappa.cli.main import main
from rekappa.cli.new import FILES, skeleton
from rekappa.config.bind import load_app, queries
from rekappa.config.load import load


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_app_loads_and_binds(here: Path) -> None:
    told = CliRunner().invoke(main, ["new", "my-shop", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["files"] == list(FILES)
    assert sorted(file.name for file in (here / "my-shop").iterdir()) == sorted(FILES)
    assert [file.name for file in here.iterdir()] == ["my-shop"]
    loaded = load("my-shop", environ={})
    assert [query.sink for query in queries(loaded.config, load_app(loaded))] == ["counts"]
    assert "@" not in "".join(skeleton("x").values()).replace("@app.job", "").replace("@pytest.fixture", "")


def test_dry_run_changes_nothing(here: Path) -> None:
    told = CliRunner().invoke(main, ["new", "shop", "--dry-run"])
    assert told.exit_code == 0
    assert "Would make" in told.stdout
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "Shop", "1shop", "", "a b", ".", "-x", "x" * 99, "sh\nop", "shop\n"])
def test_bad_names_are_refused_and_nothing_is_made(here: Path, name: str) -> None:
    told = CliRunner().invoke(main, ["new", "--", name])
    assert told.exit_code == 2
    assert "Cannot make app" in told.stderr
    assert list(here.iterdir()) == []


def test_what_exists_is_left_alone(here: Path) -> None:
    (here / "shop").mkdir()
    (here / "link").symlink_to("nowhere")
    for name in ("shop", "link"):
        told = CliRunner().invoke(main, ["new", name])
        assert told.exit_code == 2
        assert "exists already" in told.stderr
    assert list((here / "shop").iterdir()) == []
    assert CliRunner().invoke(main, ["new", "shop", "--in", "missing"]).exit_code == 2
