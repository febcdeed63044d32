"""Names of tables in a statement: found, made one word, and nothing else touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rekappa.cli.main import main
from rekappa.errors import InputError
from rekappa.query.statement import mentioned, require_query, tokens, with_plain_names

KNOWN = ("plays", "staging.plays", "archive.impressions", "dead_letters.impressions")


@pytest.mark.parametrize(
    ("sql", "written", "found"),
    [
        ("select * from plays", "select * from plays", {"plays"}),
        ("select * from Staging . PLAYS s", "select * from `staging.plays` s", {"staging.plays"}),
        ("select staging.plays.id from staging.plays", "select `staging.plays`.id from `staging.plays`",
         {"staging.plays"}),
        ("select 'staging.plays' from `archive`.`impressions`", "select 'staging.plays' from `archive.impressions`",
         {"archive.impressions"}),
        ("select 1 -- staging.plays\nfrom lake.staging.plays", "select 1 -- staging.plays\nfrom lake.staging.plays",
         set()),
        ("select /* plays */ \"plays\", 'it''s \\' plays' from x.y", None, set()),
        ("select archive.other, plays.id from plays", None, {"plays"}),
        ("select 1e5.plays", None, set()),
    ],
)  # fmt: skip
def test_names_become_one_word(sql: str, written: str | None, found: set[str]) -> None:
    assert with_plain_names(sql, KNOWN) == (written or sql)
    assert mentioned(sql, KNOWN) == found


@given(st.text(alphabet="ab.'\"`-*/\\ \n(", max_size=30))
def test_any_text_is_cut_into_pieces_and_kept(sql: str) -> None:
    assert "".join(one.text for one in tokens(sql)) == sql
    assert with_plain_names(sql, ["x.y"]) == sql


def test_only_queries_are_taken_by_their_first_word() -> None:
    require_query("  -- which\n/* one */ with a as (select 1) select * from a")
    for sql, word in (("drop table x", "DROP"), ("/* select */ insert into x values (1)", "INSERT"), (" ", "nothing")):
        with pytest.raises(InputError, match=f"Cannot run {word} here: a query only reads"):
            require_query(sql)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    CliRunner().invoke(main, ["new", "shop"])
    return tmp_path


def test_without_a_statement_the_tables_are_listed_and_nothing_is_made(shop: Path) -> None:
    told = CliRunner().invoke(main, ["query", "shop", "--json"])
    assert told.exit_code == 0, told.output
    assert [(row["table"], row["where"]) for row in json.loads(told.stdout)] == [
        ("counts", "lake.shop.counts"),
        ("archive.events", "lake.events.shop"),
        ("dead_letters.events", "lake.shop.dead_letters"),
    ]
    for words, message in (
        (["delete from counts"], "Cannot run DELETE here"),
        (["select 1 from staging.counts"], "which run staged it is not said"),
        (["select 1"], "Cannot find a project"),
        (["select 1", "--run", "x"], "Cannot find a project"),
    ):
        refused = CliRunner().invoke(main, ["query", "shop", *words])
        assert refused.exit_code == 2, refused.output
        assert message in refused.stderr
    assert not (shop / ".rekappa").exists()
