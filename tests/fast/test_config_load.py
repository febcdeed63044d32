"""From rekappa.yaml, the environment and --set to one configuration: layers, origins, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekappa.config import explain
from rekappa.config.load import Loaded, load
from rekappa.errors import ConfigError, RekappaError
from rekappa.masking import is_secret_name

BASE = """\
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, cluster: main, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks, max_misalignment: 5 minutes}
sinks:
  totals: {type: iceberg, table: lake.shop.totals, key: [id], mode: upsert}
  copy:
    type: postgres
    job: totals
    database: shop
    table: totals
    key: id
    password: ${SHOP_PASSWORD:-none}
clusters:
  main: {bootstrap: stack, region: eu}
  other: {bootstrap: stack, region: us}
profiles:
  backfill: {spark.sql.shuffle.partitions: 8}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str = BASE, **changes: str) -> Path:
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "rekappa.yaml").write_text(text)
        return tmp_path

    return written


def refused(folder: Path, *overrides: str, environ: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, overrides=overrides, environ=environ or {})
    return caught.value


def answer(act: Callable[[], object]) -> str:
    """What was said when it was refused, nothing when it was taken; any other error goes through."""
    try:
        act()
    except RekappaError as error:
        return f"{error.message} {error.hint}"
    return ""


def value(loaded: Loaded, key: str) -> tuple[Any, str]:
    found = {item.key: (item.value, str(item.origin)) for item in explain.settings(loaded)}
    return found[key]


def test_each_layer_wins_over_the_one_below_and_is_named(write: Write) -> None:
    folder = write()
    key = "sources.clicks.selected"
    environ = {"REKAPPA__SOURCES__CLICKS__SELECTED": "backfill"}
    assert value(load(folder, environ={}), key) == ("live", "default")
    by_environment = value(load(folder, environ=environ), key)
    assert by_environment == ("backfill", "REKAPPA__SOURCES__CLICKS__SELECTED")
    by_flag = value(load(folder, environ=environ, overrides=[f"{key}=live"]), key)
    assert by_flag == ("live", f"--set {key}")
    place = value(load(folder, environ={}), "sources.clicks.event_time")[1]
    assert place.endswith("rekappa.yaml:5")


def test_spark_properties_and_options_keep_their_dots(write: Write) -> None:
    environ = {
        "REKAPPA__PROFILES__LIVE__SPARK__SQL__SHUFFLE__PARTITIONS": "3",
        "REKAPPA__CLUSTERS__MAIN__OPTIONS__SECURITY__PROTOCOL": "SSL",
    }
    flags = ["profiles.backfill.spark.sql.shuffle.partitions=16", "profiles.backfill.spark={spark.x: 1}"]
    loaded = load(write(), environ=environ, overrides=flags[:1])
    assert loaded.config.profiles.backfill.spark == {"spark.sql.shuffle.partitions": 16}
    assert loaded.config.profiles.live.spark == {"spark.sql.shuffle.partitions": 3}
    assert loaded.config.clusters["main"].options == {"security.protocol": "SSL"}
    assert value(loaded, "profiles.backfill.spark.sql.shuffle.partitions")[1].startswith("--set")
    assert load(write(), environ={}, overrides=flags).config.profiles.backfill.spark == {"spark.x": 1}


def test_the_environment_matches_keys_whatever_their_case(write: Write) -> None:
    folder = write(BASE.replace("clicks:\n    schema", "webClicks:\n    schema"))
    loaded = load(folder, environ={"REKAPPA__SOURCES__WEBCLICKS__SELECTED": "backfill", "REKAPPA_HOME": "/nowhere"})
    assert loaded.config.sources["webClicks"].selected == "backfill"


@pytest.mark.parametrize(
    ("flag", "path", "wanted"),
    [
        ("archive.evolve=false", "archive.evolve", False),
        ("sinks.copy.port=0", "sinks.copy.port", 0),
        ("prices.kafka_gb_month=0", "prices.kafka_gb_month", 0.0),
        ("clusters.main.topic_prefix=", "clusters.main.topic_prefix", ""),
        ("clusters.main.topic_prefix=''", "clusters.main.topic_prefix", ""),
        ("profiles.backfill.spark={}", "profiles.backfill.spark", {}),
        ("staging_retention=0", "staging_retention", "0s"),
        ("sinks.totals.partition_by=[]", "sinks.totals.partition_by", []),
        ("sinks.copy.password=", "sinks.copy.password", "********"),
    ],
)
def test_an_explicit_empty_value_wins(write: Write, flag: str, path: str, wanted: Any) -> None:
    loaded = load(write(), overrides=[flag], environ={})
    assert value(loaded, path)[0] == wanted
    assert value(loaded, path)[1].startswith("--set")


@given(
    evolve=st.booleans(),
    rows=st.integers(0, 3),
    options=st.dictionaries(
        st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5})?", fullmatch=True).filter(lambda name: not is_secret_name(name)),
        st.sampled_from([0, False, "", 1]),
    ),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_overrides_never_lose_a_value(write: Write, evolve: bool, rows: int, options: dict[str, Any]) -> None:
    text = BASE + "archive: {evolve: true}\n"
    flags = [
        f"archive.evolve={json.dumps(evolve)}",
        f"sinks.copy.port={rows}",
        *(f"clusters.main.options.{key}={json.dumps(item)}" for key, item in options.items()),
    ]
    config = load(write(text), overrides=flags, environ={}).config
    assert config.archive.evolve is evolve
    assert config.sinks["copy"].port == rows  # type: ignore[union-attr]
    found = {key: item for key, item in config.clusters["main"].options.items() if isinstance(item, str | int)}
    assert found == {key: item for key, item in options.items() if key in found}
    assert set(config.clusters["main"].options) == set(options)


def test_a_word_that_looks_like_a_number_is_text_where_text_is_wanted(write: Write) -> None:
    loaded = load(write(), overrides=["sources.clicks.candidates.live.topic=2026"], environ={})
    assert loaded.config.sources["clicks"].candidates["live"].topic == "2026"  # type: ignore[union-attr]


def test_yaml_words_are_not_booleans_and_dates_stay_text(write: Write) -> None:
    loaded = load(
        write(BASE.replace("region: eu", "region: no").replace("database: shop", "database: 2026-01-01")), environ={}
    )
    assert loaded.config.clusters["main"].region == "no"
    assert loaded.config.sinks["copy"].database == "2026-01-01"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "line", "words", "hint"),
    [
        ("event_time: event_ts", "event_tme: event_ts", 5, "clicks.event_tme is not a known key", "'event_time'"),
        ("app: shop", "app: shop\nprofile: {}", 2, "profile is not a known key", "'profiles'"),
        ("topic: clicks}", "topic: clicks, tpoic: x}", 7, "tpoic is not a known key", "'topic'"),
        ("topic: clicks}", "topic: 12}", 7, "must be text, not 12", "quotes"),
        ("topic: clicks}", "max_records_per_batch: many, topic: x}", 7, "must be an integer", None),
        ("topic: clicks}", "max_records_per_batch: true, topic: x}", 7, "true is not a number", None),
        ("type: kafka", "type: kafak", 7, "unknown type 'kafak'", "'kafka'"),
        ("type: kafka, ", "", 7, "has no type", None),
        ("table: lake.events.clicks", "table: lakes.events.clicks", 8, "unknown catalog 'lakes'", "'lake'"),
        ("table: lake.events.clicks", "table: clicks", 8, "name catalog, namespace and table", "lake.events.clicks"),
        ("table: lake.shop.totals", "table: pond.shop.totals", 10, "unknown catalog 'pond'", "lake"),
        ("cluster: main", "cluster: mian", 7, "unknown cluster 'mian'", "'main'"),
        ("cluster: main", "cluster: []", 7, "cluster is empty", "main"),
        ("5 minutes", "5 minuets", 8, "'minuets'", None),
        ("5 minutes", "5", 8, "5 has no unit", None),
        ("event_time: event_ts", "event_time: event_t", 5, "no column of its schema", "'event_ts'"),
        ("event_time: event_ts", "event_time: id", 5, "a BIGINT, which is no time", "TIMESTAMP"),
        ("event_time: event_ts", "event_time: event_ts\n    selected: backfil", 6, "none of its", "'backfill'"),
        ("key: [id], mode: upsert", "mode: upsert", 10, "needs a key", None),
        ("    key: id\n", "", 11, "needs a key", None),
        ("mode: upsert", "mode: upset", 10, "can't be 'upset'", "'upsert'"),
        ("mode: upsert", "mode: upsert, output_mode: complete", 10, "complete writes every row again", None),
        ("mode: upsert", "mode: upsert, output_mode: updat", 10, "can't be 'updat'", "'update'"),
        ("mode: upsert", "mode: append, output_mode: update", 10, "output_mode: update needs a sink that ups", None),
        ("mode: upsert", "mode: append, version: id", 10, "version: id needs a sink that upserts", None),
        ("mode: upsert", "mode: upsert, version: id", 10, "version: id is part of the key", None),
        ("id BIGINT", "id BIGNT", 4, "unknown type 'BIGNT'", "'BIGINT'"),
        ("id BIGINT, event_ts TIMESTAMP", "{file: missing.ddl}", 4, "missing.ddl", None),
        ("app: shop", "app: My Shop", 1, "can't be 'My Shop'", "lower-case"),
        ("{spark.sql.shuffle.partitions: 8}", "{spark.x: 1, spark: 5}", 22, "must be a mapping, not 5", None),
        ("spark.sql.shuffle", "sql.shuffle", 22, "is not a known key", None),
        ("region: eu}", "region: eu}\n  main: {}", 20, "already set on line 19", "one of the two"),
        ("app: shop", "app: [shop", 2, "expected", None),
        ("app: shop", "app: !!python/object:os.system shop", 1, "tag", None),
        ("none}", "none}\n    user: ${NO_SUCH_THING}", 18, "NO_SUCH_THING, which is not set", "${NO_SUCH_THING:-"),
        ("none}", "none}\n    user: ${broken", 18, "unfinished", None),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_file_line_and_suggestion(
    write: Write, old: str, new: str, line: int, words: str, hint: str | None
) -> None:
    error = refused(write(BASE.replace(old, new, 1)))
    assert f"rekappa.yaml:{line}" in error.message
    assert words in error.message
    if hint:
        assert hint in str(error.hint)


@pytest.mark.parametrize(
    "sink",
    [
        "type: kafka, topic: totals, key: id",
        "type: parquet, path: totals",
        "type: hive, database: shop, table: totals, partition_by: day, key: id",
        "type: console",
        "type: 'null'",
    ],
)
def test_update_mode_needs_a_sink_that_upserts(write: Write, sink: str) -> None:
    other = BASE.replace(
        "type: iceberg, table: lake.shop.totals, key: [id], mode: upsert", sink + ", output_mode: update"
    )
    assert "needs a sink that upserts by key" in refused(write(other)).message


def test_sinks_that_upsert_may_update_and_those_that_compare_may_rank(write: Write) -> None:
    keyed = "type: cassandra, keyspace: shop, table: totals, key: id"
    for sink in (keyed, "type: opensearch, url: 'http://x', index: totals, key: id"):
        text = BASE.replace("type: iceberg, table: lake.shop.totals, key: [id], mode: upsert", sink)
        assert load(write(text.replace(sink, f"{sink}, output_mode: update")), environ={})
        error = refused(write(text.replace(sink, f"{sink}, version: seq")))
        assert "needs a sink that compares before it writes" in error.message
    ranked = load(write(BASE.replace("mode: upsert", "mode: upsert, version: seq, output_mode: update")), environ={})
    assert ranked.config.sinks["totals"].version == "seq"
    assert ranked.config.sinks["totals"].output_mode == "update"
    assert ranked.config.sinks["copy"].output_mode == "append"


def test_two_clusters_behind_one_source_need_two_regions(write: Write) -> None:
    both = BASE.replace("cluster: main", "cluster: [main, other]")
    assert load(write(both), environ={}).config.sources["clicks"].candidates["live"].cluster == ("main", "other")  # type: ignore[union-attr]
    error = refused(write(both.replace("region: us", "region: eu")))
    assert "rekappa.yaml:7" in error.message
    assert "two clusters of region 'eu'" in error.message


def test_all_mistakes_are_listed_at_once(write: Write) -> None:
    error = refused(write(BASE.replace("event_time:", "event_tme:").replace("mode: upsert", "mode: upset")))
    assert "2 problems" in error.message
    assert "rekappa.yaml:5" in error.message
    assert "rekappa.yaml:10" in error.message


@pytest.mark.parametrize(
    ("flag", "words", "hint"),
    [
        ("sources.clcks.selected=live", "no source 'clcks'", "'clicks'"),
        ("sources.clicks.candidates.lve.topic=x", "no candidate 'lve'", "'live'"),
        ("sinks.total.mode=append", "no sink 'total'", "'totals'"),
        ("app.name=x", "app is a single value", None),
        ("nothing", "a.b.c=value", None),
        ("=1", "a.b.c=value", None),
        ("a..b=1", "a.b.c=value", None),
        ("sinks=[1", "not a list or mapping", None),
        ("profile.live.master=x", "not a known key", "'profiles'"),
    ],
)
def test_bad_overrides_name_themselves(write: Write, flag: str, words: str, hint: str | None) -> None:
    error = refused(write(), flag)
    assert "--set" in error.message
    assert words in error.message
    assert hint is None or hint in str(error.hint)


SECRET = "s3cr3t-5f0e"


def test_secrets_are_masked_everywhere(write: Write) -> None:
    text = BASE.replace("region: eu", "options: {sasl.jaas.config: '${JAAS}', ssl.truststore.location: /x}")
    text += f"catalogs: {{lake: {{type: rest, uri: 'https://lake/x', options: {{token: {SECRET}}}}}}}\n"
    loaded = load(write(text), environ={"SHOP_PASSWORD": SECRET, "JAAS": SECRET})
    shown = json.dumps([(item.value, str(item.origin)) for item in explain.settings(loaded)])
    assert SECRET not in shown
    assert SECRET not in json.dumps(explain.masked(loaded))
    assert "(from SHOP_PASSWORD)" in shown
    assert SECRET not in repr(loaded.config.clusters)
    assert loaded.config.sinks["copy"].password.get_secret_value() == SECRET  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "key", "belongs"),
    [
        (f"catalogs: {{lake: {{type: rest, uri: 'https://me:{SECRET}@lake/x'}}}}", "catalogs.lake.uri", "credential"),
        (f"catalogs: {{lake: {{type: rest, uri: 'https://{SECRET}@lake/x'}}}}", "catalogs.lake.uri", "token"),
        ("catalogs: {lake: {type: rest, uri: 'https://me:${SHOP_PASSWORD}@lake/x'}}", "catalogs.lake.uri", "options"),
        (f"catalogs: {{lake: {{type: jdbc, uri: 'jdbc:postgresql://db/x?user=me&password={SECRET}'}}}}",
         "catalogs.lake.uri", "jdbc.password"),
        (f"catalogs: {{lake: {{type: rest, uri: 'https://lake', warehouse: 's3://me:{SECRET}@b/w'}}}}",
         "catalogs.lake.warehouse", "options"),
        (f"registries: {{main: {{url: 'https://me:{SECRET}@registry/'}}}}", "registries.main.url", "basic.auth"),
    ],
)  # fmt: skip
def test_a_login_in_an_address_is_refused_and_not_repeated(write: Write, written: str, key: str, belongs: str) -> None:
    """Iceberg writes a catalog's address to Spark's log as it is."""
    with pytest.raises(ConfigError, match=re.escape(key)) as refusal:
        load(write(f"{BASE}{written}\n"), environ={"SHOP_PASSWORD": SECRET})
    assert belongs in str(refusal.value.hint) + refusal.value.message
    assert SECRET not in str(refusal.value.hint) + refusal.value.message


@pytest.mark.parametrize(
    "catalog",
    [
        "{type: hive, uri: 'thrift://a:9083,thrift://b:9083', warehouse: 'abfss://lake@shop.dfs.core.windows.net/w'}",
        "{type: rest, uri: 'https://lake.example:8181/catalog?warehouse=ab', warehouse: 's3://lake/w@1'}",
        "{type: jdbc, uri: 'jdbc:postgresql://db:5432/catalog?sslmode=require'}",
    ],
)
def test_addresses_without_a_login_are_taken(write: Write, catalog: str) -> None:
    assert load(write(f"{BASE}catalogs: {{lake: {catalog}}}\n"), environ={}).config.catalogs["lake"].uri


@pytest.mark.parametrize(
    "flag",
    [
        f"sinks.copy.passwordd={SECRET}",
        f"clusters.main.options.password={{a: {SECRET}}}",
        f"sinks.copy.password=[{SECRET}",
    ],
)
def test_errors_do_not_show_secrets(write: Write, flag: str) -> None:
    said = answer(lambda: load(write(), overrides=[flag], environ={"SHOP_PASSWORD": SECRET}))
    assert SECRET not in said


def test_a_wrong_secret_in_the_file_is_not_quoted(write: Write) -> None:
    error = refused(write(BASE.replace("password: ${SHOP_PASSWORD:-none}", f"password: [{SECRET}]")))
    assert "rekappa.yaml:17" in error.message
    assert SECRET not in error.message


def test_variables_have_defaults_and_an_escape(write: Write) -> None:
    text = BASE.replace("database: shop", "database: a${X:-}b$${c}").replace("table: totals", "table: ${T}", 1)
    sink = load(write(text), environ={"T": "true"}).config.sinks["copy"]
    assert sink.database == "ab${c}"  # type: ignore[union-attr]
    assert sink.table == "true"  # type: ignore[union-attr]


def test_anchors_and_merges(write: Write) -> None:
    text = BASE.replace(
        "  main: {bootstrap: stack, region: eu}", "  main: &m {bootstrap: stack, region: eu, topic_prefix: x}"
    ).replace("  other: {bootstrap: stack, region: us}", "  other: {<<: *m, region: us}")
    other = load(write(text), environ={}).config.clusters["other"]
    assert (other.region, other.topic_prefix) == ("us", "x")


@pytest.mark.parametrize("text", ["", "- a", "plain", "a: &x [*x]", "[" * 700, "? [a]\n: b", "\x00", "a: b\n---\nc: d"])
def test_odd_documents_are_refused(write: Write, text: str) -> None:
    assert "rekappa.yaml" in refused(write(text)).message


def test_aliases_can_not_blow_up(write: Write) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "more than" in refused(write("\n".join(levels))).message


def test_an_app_is_found_by_name_folder_and_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write()
    app = folder / "examples" / "thing"
    app.mkdir(parents=True)
    (app / "rekappa.yaml").write_text(BASE)
    monkeypatch.chdir(folder)
    assert load("thing", environ={}).folder == app.resolve()
    assert load("shop", environ={}).folder == folder.resolve()
    assert load(".", environ={}).folder == folder.resolve()
    assert load(app / "rekappa.yaml", environ={}).folder == app.resolve()
    with pytest.raises(ConfigError) as caught:
        load("thin", environ={})
    assert "'thing'" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"no rekappa\.yaml"):
        load("examples", environ={})


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_rekappa_error_or_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "rekappa.yaml").write_bytes(text)
    with pytest.raises(RekappaError):
        load(tmp_path, environ={})


SNIPPETS = st.sampled_from(
    [
        "",
        "\n",
        ":",
        "- ",
        "{",
        "}",
        "[",
        "*a",
        "&a ",
        "!!set ",
        "<<: ",
        "null",
        "0",
        "''",
        "${X}",
        "${",
        "  ",
        "\t",
        "#",
    ]
) | st.text(max_size=6)


@given(cuts=st.lists(st.tuples(st.integers(0, len(BASE)), st.integers(0, 30), SNIPPETS), min_size=1, max_size=4))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_to_a_good_file_is_survived(write: Write, cuts: list[tuple[int, int, str]]) -> None:
    text = BASE
    for at, length, snippet in cuts:
        text = text[:at] + snippet + text[at + length :]
    folder = write("")
    (folder / "rekappa.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    answer(lambda: explain.settings(load(folder, environ={})))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "app", "entry", "sources", "sources.clicks", "sources.clicks.schema", "sources.clicks.candidates", "sinks.totals",
    "sinks.totals.key", "sinks.copy.password", "clusters.main", "clusters.main.options.x", "profiles.live.spark.x",
    "profiles.live", "catalogs", "archive.trigger", "prices.kafka_gb_month", "staging_retention", "sinks",
]  # fmt: skip


@given(key=st.sampled_from(KEYS), new=VALUES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_at_any_key_is_taken_or_refused(write: Write, key: str, new: Any) -> None:
    answer(lambda: explain.settings(load(write(), overrides=[f"{key}={json.dumps(new)}"], environ={})))


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flag_and_any_app_name_are_taken_or_refused(write: Write, text: str) -> None:
    folder = write()
    answer(lambda: load(folder, overrides=[text], environ={}))
    answer(lambda: load(text, environ={}))


def test_durations_are_timedeltas(write: Write) -> None:
    loaded = load(write(), environ={})
    assert loaded.config.sources["clicks"].candidates["backfill"].max_misalignment == timedelta(minutes=5)  # type: ignore[union-attr]


def test_the_null_sink_needs_no_quotes(write: Write) -> None:
    text = BASE.replace("  copy:\n", "  nothing: {type: null}\n  copy:\n")
    assert load(write(text), environ={}).config.sinks["nothing"].type == "null"


@pytest.mark.parametrize(
    "flag",
    [
        "clusters={main: {bootstrap: stack, options: {ssl.key.password: S3C}}}",
        'clusters.main={bootstrap: stack, options: {header.Authorization: "Bearer S3C"}}',
        "clusters.main.options={sasl.jaas.config: x}",
    ],
)
def test_a_secret_inside_a_mapping_is_refused_too(write: Write, flag: str) -> None:
    error = refused(write(), flag)
    assert "a secret on a command line" in error.message
    assert "S3C" not in error.message


def test_a_secret_is_refused_on_the_command_line(write: Write) -> None:
    error = refused(write(), f"clusters.main.options.sasl.password={SECRET}")
    assert "every user of the machine" in error.message
    assert SECRET not in error.message
    variable = "REKAPPA__CLUSTERS__MAIN__OPTIONS__SASL__PASSWORD"
    assert variable in (error.hint or "")
    taken = load(write(), environ={variable: SECRET}).config.clusters["main"].options["sasl.password"]
    assert taken.get_secret_value() == SECRET  # type: ignore[union-attr]
    error = refused(write(), f"sinks.copy.host=postgresql://me:{SECRET}@db/shop")
    assert "every user of the machine" in error.message
    assert SECRET not in error.message


@pytest.mark.parametrize("written", ["{region: eu}", "{region: eu, bootstrap: ''}", "{}"])
def test_a_cluster_needs_an_address(write: Write, written: str) -> None:
    error = refused(write(BASE.replace("{bootstrap: stack, region: eu}", written)))
    assert "clusters.main.bootstrap" in error.message
    if "bootstrap" not in written:
        assert "rekappa.yaml:19: clusters.main.bootstrap is missing" in error.message
        assert "host:port, or `stack`" in (error.hint or "")


@pytest.mark.parametrize("kind", ["STRING", "BIGINT", "BOOLEAN", "ARRAY<TIMESTAMP>"])
def test_an_event_time_that_is_no_time(write: Write, kind: str) -> None:
    error = refused(write(BASE.replace("event_ts TIMESTAMP", f"event_ts {kind}")))
    assert "event_time is 'event_ts', a " in error.message
    assert "which is no time" in error.message


@pytest.mark.parametrize(
    ("told", "mode", "origin"),
    [
        ("key: [id]", "upsert", "default"),
        ("", "append", "default"),
        ("mode: append, key: [id]", "append", "rekappa.yaml:10"),
    ],
)
def test_a_key_means_upsert_unless_told_otherwise(write: Write, told: str, mode: str, origin: str) -> None:
    folder = write(BASE.replace("key: [id], mode: upsert", told or "job: totals"))
    found, where = value(load(folder, environ={}), "sinks.totals.mode")
    assert (found, where.endswith(origin)) == (mode, True)
    assert load(folder, environ={}).config.sinks["totals"].upserts == (mode == "upsert")
