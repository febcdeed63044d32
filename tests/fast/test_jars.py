"""Finding jars without downloading any: manifests, folders the user names, what Ivy reports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekappa.errors import SetupError
from rekappa.jvm import manifest
from rekappa.jvm.cache import cache_folder
from rekappa.jvm.ivy import cause_in, declared, missing_in
from rekappa.jvm.jars import CONFS, IVY_FILE, jars

IVY_OUTPUT = """
:: resolving dependencies :: io.rekappa#rekappa;working@vm
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t:: org.apache.kafka#kafka-clients;3.9.1: not found
\t\t:: org.xerial#sqlite-jdbc;3.50.3.0: not found
\t\t:: org.xerial#sqlite-jdbc;3.50.3.0: not found
\tServer access error at url https://example.org/a.pom (java.net.UnknownHostException: example.org)
\t\t[FAILED     ] org.pcollections#pcollections;4.0.2!pcollections.jar: timed out (0ms)
"""


def folder_of_jars(folder: Path) -> Path:
    for conf in CONFS:
        (folder / conf).mkdir(parents=True)
        for name in declared(IVY_FILE, conf):
            (folder / conf / name).write_bytes(name.encode())
    return folder


def test_ivy_xml_declares_something_for_every_configuration() -> None:
    assert "iceberg-spark-runtime-4.1_2.13-1.12.0.jar" in declared(IVY_FILE, "spark")
    assert "kafka_2.13-4.3.1.jar" in declared(IVY_FILE, "broker")


def test_what_ivy_could_not_get_is_named_once() -> None:
    assert missing_in(IVY_OUTPUT) == [
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "org.pcollections:pcollections:4.0.2",
    ]
    assert cause_in(IVY_OUTPUT) == "UnknownHostException: example.org"
    assert cause_in("") is None


def test_a_named_folder_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKAPPA_JARS", str(folder_of_jars(tmp_path)))
    (tmp_path / "spark" / "one-more-1.0.jar").touch()
    found = jars("spark")
    assert found == sorted((tmp_path / "spark").iterdir())


def test_a_named_folder_that_lacks_a_jar_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKAPPA_JARS", str(folder_of_jars(tmp_path)))
    (tmp_path / "spark" / "kafka-clients-3.9.1.jar").unlink()
    with pytest.raises(SetupError, match=r"lacks kafka-clients-3\.9\.1\.jar") as refused:
        jars("spark")
    assert "REKAPPA_JARS" in str(refused.value.hint)


def test_an_untouched_folder_is_intact(tmp_path: Path) -> None:
    folder = folder_of_jars(tmp_path)
    manifest.write(folder, manifest.survey(folder))
    known = manifest.read(folder)
    assert known == manifest.survey(folder)
    assert manifest.damaged(folder, known or {}) == []


def test_a_changed_a_cut_and_a_removed_jar_are_damaged(tmp_path: Path) -> None:
    folder = folder_of_jars(tmp_path)
    known = manifest.survey(folder)
    changed, cut, removed = list(known)[:3]
    (folder / changed).write_bytes(b"x" * known[changed].size)
    (folder / cut).write_bytes(b"")
    (folder / removed).unlink()
    assert manifest.damaged(folder, known) == [changed, cut, removed]


def test_a_new_time_alone_is_no_damage(tmp_path: Path) -> None:
    folder = folder_of_jars(tmp_path)
    known = manifest.survey(folder)
    os.utime(folder / next(iter(known)), (1, 1))
    assert manifest.damaged(folder, known) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99, "files": {}}', '{"version": 1, "files": {"a": {}}}'])
def test_an_unusable_manifest_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / manifest.NAME).write_text(text)
    assert manifest.read(tmp_path) is None


def test_the_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "rekappa"
