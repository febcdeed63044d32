"""An unknown Spark or Iceberg is refused by name; their inner classes are named in one module each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rekappa
from rekappa.errors import SetupError
from rekappa.spark.releases import refuse_unknown


def test_an_unknown_version_is_named() -> None:
    refuse_unknown({"Spark": "4.1.3", "Iceberg": "1.12.0"})
    with pytest.raises(SetupError, match=r"Spark 4\.2\.0 \(known: 4\.1\), Iceberg 2\.0\.0 \(known: 1\.12\)"):
        refuse_unknown({"Spark": "4.2.0", "Iceberg": "2.0.0"})
    with pytest.raises(SetupError, match=r"Spark 4\.10\.0"):
        refuse_unknown({"Spark": "4.10.0", "Iceberg": "1.12.1"})


def test_inner_classes_stand_in_one_module_each() -> None:
    root = Path(rekappa.__file__).parent
    named = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"org\.apache\.(spark|iceberg)\.", path.read_text())
    }
    # Settings name the classes that Iceberg documents for them.
    # And one module starts Spark's own server of the JVM.
    assert named == {
        "spark/private.py", "spark/session.py", "spark/releases.py", "spark/direct.py", "iceberg/private.py"
    }  # fmt: skip
