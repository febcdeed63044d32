"""Choosing a Java from what a machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekappa.errors import SetupError
from rekappa.jvm import java as module
from rekappa.jvm.java import java, major, version_of


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    java.cache_clear()
    yield
    java.cache_clear()


def runtime(folder: Path, version: str) -> Path:
    """A Java home that says its version the way every JDK does."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(
    ("version", "release"), [("17.0.15+6", 17), ("21", 21), ("1.8.0_392", 8), ("22-ea", 22), ("", 0), ("x", 0)]
)
def test_major(version: str, release: int) -> None:
    assert major(version) == release


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "17.0.1")))
    monkeypatch.setenv("PATH", str(runtime(tmp_path / "path", "21.0.1") / "bin"))
    assert java() == tmp_path / "home" / "bin" / "java"


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(runtime(tmp_path / "path", "21.0.1") / "bin"))
    assert java() == tmp_path / "path" / "bin" / "java"
    module.use_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "path")


def test_no_java_at_all_names_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"Java 17 or newer: .*home/bin/java \(version 11\)") as refused:
        java()
    assert "rekappa[java]" in str(refused.value.hint)


def test_a_file_that_is_no_java_has_no_version(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert version_of(program) == 0
