"""Our own Java classes (`sources/`), as a jar: compiled once per user, by the compiler that PySpark brings.

Few, and only where Spark or Hadoop wants a class. A machine needs no JDK for them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from rekappa.errors import SetupError
from rekappa.jvm.cache import cache_folder
from rekappa.jvm.java import java
from rekappa.jvm.pyspark_jars import pyspark_jars

SOURCES = Path(__file__).with_name("sources")
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"


@cache
def compiled() -> Path:
    """The jar; compiles it if this version of it is not there yet."""
    sources = sorted(SOURCES.glob("*.java"))
    known = pyspark_jars("*")
    of = [[jar.name for jar in known], [source.read_text() for source in sources]]
    wanted = cache_folder() / "compiled" / f"rekappa-{hashlib.sha256(repr(of).encode()).hexdigest()[:16]}.jar"
    if not wanted.is_file():
        wanted.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=wanted.parent) as folder:
            _compile(sources, known, Path(folder))
            # Others may do the same at the same time: each puts a whole file in place.
            os.replace(_packed(Path(folder)), wanted)
    return wanted


def _compile(sources: list[Path], known: list[Path], into: Path) -> None:
    compiler = [*pyspark_jars("janino-*"), *pyspark_jars("commons-compiler-*")]
    command: list[str | Path] = [java(), "-XX:TieredStopAtLevel=1", "-cp", _path(compiler), _COMPILER]
    command += ["-classpath", _path(known), "-d", into, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not list(into.rglob("*.class")):
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise SetupError(f"Cannot compile {', '.join(one.name for one in sources)}: {' '.join(said)}")


def _packed(folder: Path) -> Path:
    jar = folder / "classes.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        for file in sorted(folder.rglob("*.class")):
            packed.write(file, file.relative_to(folder))
    return jar


def _path(files: list[Path]) -> str:
    return os.pathsep.join(str(file) for file in files)
