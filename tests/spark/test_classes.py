"""Classes that are kept for the JVM, so that Spark starts sooner."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekappa.spark import classes


def test_spark_starts_with_the_classes_that_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "cache_folder", lambda: tmp_path)
    assert classes.sharing() == [], "none were kept: the JVM is told nothing"
    classes.archive().parent.mkdir(parents=True)
    classes.archive().touch()
    assert f"-XX:SharedArchiveFile={classes.archive()}" in classes.sharing()
    assert "-Xshare:auto" in classes.sharing(), "an archive that Java does not like is no reason not to start"
