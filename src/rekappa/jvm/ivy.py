"""Running the Apache Ivy that PySpark ships: a declared ivy.xml in, a folder of jars out."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rekappa.errors import SetupError
from rekappa.jvm.java import java
from rekappa.jvm.pyspark_jars import pyspark_jars

TYPES = ("jar", "bundle")
_PATTERN = "[conf]/[artifact]-[revision](-[classifier]).[ext]"
_NAMED = 8
# Java waits for ever by default: a network that swallows packets would look like work.
_PATIENCE = ("-Dsun.net.client.defaultConnectTimeout=15000", "-Dsun.net.client.defaultReadTimeout=60000")


def declared(ivy_file: Path, conf: str) -> list[str]:
    """The file names that ivy.xml itself asks for in one configuration; what they depend on is not among them."""
    names = []
    for dependency in ElementTree.parse(ivy_file).iter("dependency"):
        if dependency.get("conf", "").partition("->")[0] == conf:
            names.append(f"{dependency.get('name')}-{dependency.get('rev')}.jar")
    return names


def missing_in(output: str) -> list[str]:
    """The artifacts that Ivy's output reports as not found or not downloaded, in order, each once."""
    unresolved = re.findall(r"::\s+([\w.\-]+)#([\w.\-]+);([\w.\-]+): ", output)
    failed = re.findall(r"\[FAILED\s*\]\s+([\w.\-]+)#([\w.\-]+);([\w.\-]+)!", output)
    return list(dict.fromkeys(":".join(parts) for parts in [*unresolved, *failed]))


def cause_in(output: str) -> str | None:
    """Why Ivy could not reach the registry, in Java's words, if it said so."""
    found = re.search(r"Server access error at url \S+ \((?:[\w.]+\.)?(.+)\)", output)
    return found[1] if found else None


def retrieve(ivy_file: Path, confs: Sequence[str], into: Path, ivy_cache: Path, types: Sequence[str] = TYPES) -> None:
    """Resolve and copy every artifact to `into/<conf>/`. `REKAPPA_IVY_SETTINGS` may name an ivysettings.xml,
    for a machine whose artifacts come from a mirror. Refuses with what was missing."""
    command: list[str | Path] = [java(), *_PATIENCE, "-cp", pyspark_jars("ivy-*")[-1], "org.apache.ivy.Main"]
    settings = os.environ.get("REKAPPA_IVY_SETTINGS")
    command += ["-settings", settings] if settings else []
    command += ["-ivy", ivy_file, "-cache", ivy_cache, "-confs", *confs, "-types", *types]
    command += ["-retrieve", f"{into}/{_PATTERN}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    missing, cause = missing_in(said), cause_in(said)
    if not missing:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise SetupError(f"Cannot resolve {ivy_file}: Ivy ended with {done.returncode}:\n{last}")
    rest = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    rest += f" ({cause})" if cause else ""
    raise SetupError(
        f"Cannot download the jars of {ivy_file}: missing {', '.join(missing[:_NAMED])}{rest}",
        hint="check the network, or set REKAPPA_JARS to a folder with "
        + ", ".join(f"{conf}/*.jar" for conf in confs)
        + " (a copy of the cache of a machine that has them)",
    )
