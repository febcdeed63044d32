"""`python -m rekappa.jvm [IVY.XML CONF ...]`: have Java and the jars ready, so that nothing later waits for a download.

Without arguments rekappa's own jars; with a declared ivy.xml, the jars of its configurations.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rekappa.errors import SetupError
from rekappa.jvm.jars import CONFS, jars, resolve
from rekappa.jvm.java import java


def main(arguments: list[str]) -> None:
    print(java())
    found = resolve(Path(arguments[0]), arguments[1:]) if arguments else {conf: jars(conf) for conf in CONFS}
    for conf, files in found.items():
        print(f"{conf}: {len(files)} jars")


try:
    main(sys.argv[1:])
except SetupError as refused:
    sys.exit(f"error: {refused.message}\nhint: {refused.hint}" if refused.hint else f"error: {refused.message}")
except OSError as missing:
    sys.exit(f"error: Cannot read {missing.filename}: {missing.strerror}")
