"""How a source says what its messages are: a word, or a format with a schema registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekappa.config import explain
from rekappa.config.load import Loaded, load
from rekappa.errors import ConfigError, SourceError
from rekappa.sources.decode import PlainAvro, PlainJson, Registered, RegisteredJson, decoder

BASE = """\
app: shop
registries:
  main: {{url: "https://registry.example/", options: {options}}}
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    format: {format}
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: clicks}}}}
sinks: {{totals: {{type: console}}}}
"""


def loaded(folder: Path, written: str, *overrides: str, options: str = "{basic.auth.user.info: 'me:hush'}") -> Loaded:
    (folder / "rekappa.yaml").write_text(BASE.format(format=written, options=options))
    return load(folder, overrides=overrides, environ={})


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("json", PlainJson),
        ("avro", PlainAvro),
        ("{type: avro}", PlainAvro),
        ("{registry: main}", RegisteredJson),
        ("{type: avro, registry: main}", Registered),
        ("{type: protobuf, registry: main, subject: s}", Registered),
    ],
)
def test_every_way_to_write_it(tmp_path: Path, written: str, kind: type) -> None:
    found = loaded(tmp_path, written)
    assert type(decoder(found, found.config.sources["clicks"])) is kind


def test_a_word_is_shown_with_who_set_it(tmp_path: Path) -> None:
    for overrides, origin in (((), "rekappa.yaml:7"), (("sources.clicks.format=json",), "--set")):
        shown = {one.key: one for one in explain.settings(loaded(tmp_path, "avro", *overrides))}
        one = shown["sources.clicks.format.type"]
        assert one.value == ("json" if overrides else "avro")
        assert origin in str(one.origin)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("xml", "sources.clicks.format.type can't be 'xml'"),
        ("protobuf", "protobuf needs a registry"),
        ("{type: avro, subject: s}", "subject needs a registry"),
        ("{type: avro, registry: mian}", "sources.clicks.format.registry names the unknown registry 'mian'"),
        ("[avro]", "sources.clicks.format must be a mapping"),
    ],
)
def test_mistakes(tmp_path: Path, written: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, written)
    assert words in str(caught.value)
    assert "rekappa.yaml:7" in str(caught.value)


def test_the_login_is_shown_nowhere(tmp_path: Path) -> None:
    found = loaded(tmp_path, "{type: avro, registry: main}")
    assert "hush" not in repr(explain.masked(found))
    assert "hush" not in repr(found.config.registries["main"].options)
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "avro", "registries.main.options.bearer.auth.token=hush")
    assert "hush" not in str(caught.value)


def test_an_option_that_nobody_knows(tmp_path: Path) -> None:
    found = loaded(tmp_path, "{type: avro, registry: main}", options="{ssl.keystore.location: x}")
    with pytest.raises(SourceError, match=r"option 'ssl\.keystore\.location'"):
        decoder(found, found.config.sources["clicks"])
