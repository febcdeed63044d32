"""Catalogs as PyIceberg wants them, from the same configuration as Spark's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rekappa.config.model import AppConfig
from rekappa.errors import ConfigError, SourceError
from rekappa.home import Home
from rekappa.iceberg.catalog import _properties, load_table, open_catalog


def config(**catalog: Any) -> AppConfig:
    return AppConfig.model_validate(
        {
            "app": "plays",
            "catalogs": {"lake": catalog},
            "sources": {
                "plays": {
                    "schema": "id BIGINT",
                    "event_time": "id",
                    "candidates": {"live": {"type": "kafka", "topic": "plays"}},
                }
            },
            "sinks": {"out": {"type": "null"}},
        }
    )


def test_types_and_options_pass_through(tmp_path: Path) -> None:
    catalog = config(type="rest", uri="http://catalog", warehouse="s3://lake", options={"token": "t", "on": True})
    assert _properties(catalog.catalogs["lake"], Home(tmp_path)) == {
        "type": "rest",
        "uri": "http://catalog",
        "warehouse": "s3://lake",
        "token": "t",
        "on": "true",
    }


@pytest.mark.parametrize(
    ("jdbc", "plain"),
    [("jdbc:sqlite:/a/b.db", "sqlite:////a/b.db"), ("jdbc:postgresql://host/db", "postgresql://host/db")],
)
def test_jdbc_addresses_are_rewritten(jdbc: str, plain: str, tmp_path: Path) -> None:
    assert _properties(config(type="jdbc", uri=jdbc).catalogs["lake"], Home(tmp_path))["uri"] == plain


def test_nothing_is_created(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"catalog\.db does not exist"):
        open_catalog(config(type="stack"), "lake", Home(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_short_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lacks a catalog or a namespace"):
        load_table(config(type="stack"), "plays", Home(tmp_path))
