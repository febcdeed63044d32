"""`python -m rekappa.jvm`: have Java and the jars ready, so that nothing later waits for a download."""

from __future__ import annotations

import sys

from rekappa.errors import SetupError
from rekappa.jvm.jars import CONFS, jars
from rekappa.jvm.java import java

try:
    print(java())
    for conf in CONFS:
        print(f"{conf}: {len(jars(conf))} jars")
except SetupError as refused:
    sys.exit(f"error: {refused.message}\nhint: {refused.hint}" if refused.hint else f"error: {refused.message}")
