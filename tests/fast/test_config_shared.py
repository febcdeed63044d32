"""Settings that each are right and together can only go wrong: two that write to one place, two time zones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekappa.config.load import load
from rekappa.errors import ConfigError

APP = """
app: shop
sources:
  orders:
    schema: id BIGINT, at TIMESTAMP
    event_time: at
    candidates:
      live: {type: kafka, topic: orders}
      backfill: {type: iceberg, table: lake.events.orders}
sinks:
  one: {type: iceberg, table: lake.shop.one, event_time: at}
  two: {type: iceberg, table: lake.shop.two, event_time: at}
  sent: {type: kafka, topic: sent}
  sent_too: {type: kafka, topic: sent}
"""


def said(folder: Path, *overrides: str) -> str:
    (folder / "rekappa.yaml").write_text(APP)
    (folder / "app.py").write_text("")
    with pytest.raises(ConfigError) as refused:
        load(folder, overrides=overrides)
    return f"{refused.value.message} {refused.value.hint}"


def test_as_it_is_it_is_taken(tmp_path: Path) -> None:
    (tmp_path / "rekappa.yaml").write_text(APP)
    (tmp_path / "app.py").write_text("")
    zone = "spark.sql.session.timeZone=Europe/Berlin"
    load(tmp_path, overrides=(f"profiles.live.{zone}", f"profiles.backfill.{zone}"))


def test_two_sinks_of_one_table(tmp_path: Path) -> None:
    text = said(tmp_path, "sinks.two.table=lake.shop.one")
    assert "sinks.two writes to lake.shop.one, which is that of sink 'one'" in text
    assert "replaces all that is there" in text


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("sinks.two.table=lake.events.orders", "the archive of source 'orders'"),
        ("archive.dead_letters=lake.shop.two", "the table of dead letters"),
    ],
)
def test_a_sink_in_the_archive(tmp_path: Path, override: str, what: str) -> None:
    assert what in said(tmp_path, override)


@pytest.mark.parametrize("zone", ["America/New_York", "+02:00"])
def test_a_replay_in_another_time_zone(tmp_path: Path, zone: str) -> None:
    text = said(tmp_path, f"profiles.live.spark.sql.session.timeZone={zone}")
    assert f"profiles.backfill has time zone UTC, live has {zone}" in text


def test_no_time_zone(tmp_path: Path) -> None:
    zone = "spark.sql.session.timeZone=Mars/Olympus"
    assert "'Mars/Olympus', which is no time zone" in said(
        tmp_path, f"profiles.live.{zone}", f"profiles.backfill.{zone}"
    )


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("sinks.one.expect=changed~5", "sinks.one.expect is wrong: Cannot read expectation 'changed~5'"),
        ("sinks.one.key=[]", "sinks.one.key is empty"),
        ("sinks.one.partition_by=[weeks(at)]", "holds 'weeks(at)', which is no partition of an Iceberg table"),
        ("sinks.one.partition_by=[bucket(id)]", "holds 'bucket(id)'"),
    ],
)
def test_what_a_sink_says_of_itself_is_read_at_once(tmp_path: Path, override: str, what: str) -> None:
    assert what in said(tmp_path, override)


@pytest.mark.parametrize(
    "part", ["id", "`odd name`", "days(at)", "HOURS( at )", "bucket(16, id)", "truncate(8, a.`b c`)", "years(`a``b`)"]
)
def test_partitions_that_iceberg_knows(tmp_path: Path, part: str) -> None:
    (tmp_path / "rekappa.yaml").write_text(
        APP.replace("table: lake.shop.one,", f"table: lake.shop.one, partition_by: ['{part}'],")
    )
    (tmp_path / "app.py").write_text("")
    load(tmp_path)


def test_two_sources_in_one_archive(tmp_path: Path) -> None:
    twice = APP.replace("sinks:", SECOND_SOURCE + "sinks:", 1)
    (tmp_path / "rekappa.yaml").write_text(twice)
    (tmp_path / "app.py").write_text("")
    with pytest.raises(
        ConfigError, match=r"sources\.again is archived in lake\.events\.orders, which is the archive of"
    ):
        load(tmp_path)


SECOND_SOURCE = """
  again:
    schema: id BIGINT, at TIMESTAMP
    event_time: at
    candidates:
      live: {type: kafka, topic: orders}
      backfill: {type: iceberg, table: lake.events.orders}
"""


def test_two_candidates_of_a_sink_in_one_place(tmp_path: Path) -> None:
    place = "{type: iceberg, table: lake.shop.one}"
    twice = f"{{event_time: at, candidates: {{production: {place}, test: {place}}}}}"
    text = APP.replace("{type: iceberg, table: lake.shop.one, event_time: at}", twice)
    (tmp_path / "rekappa.yaml").write_text(text)
    (tmp_path / "app.py").write_text("")
    with pytest.raises(ConfigError, match=r"sinks\.one\.candidates\.test writes to .*, as candidate 'production' does"):
        load(tmp_path)


def test_a_secret_among_javas_options(tmp_path: Path) -> None:
    options = "{spark.driver.extraJavaOptions: -Djavax.net.ssl.trustStorePassword=hunter2}"
    (tmp_path / "rekappa.yaml").write_text(f"{APP}profiles:\n  live: {options}\n")
    (tmp_path / "app.py").write_text("")
    with pytest.raises(
        ConfigError, match="holds a secret, and Java's options stand in the list of processes"
    ) as refused:
        load(tmp_path)
    assert "hunter2" not in refused.value.message
