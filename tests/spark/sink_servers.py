"""Fixtures: the servers that sinks write to, started once per test run and side by side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers.cassandra_node import cassandra
from servers.opensearch_node import opensearch
from servers.postgres import postgres
from sink_rows import KILLED_ROWS, sinks_config

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.sinks.cassandra import Cassandra

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def sink_servers(tmp_path_factory: pytest.TempPathFactory, broker: str) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        # Side by side: each spends most of its start waiting.
        database = pool.submit(stack.enter_context, postgres())
        node = pool.submit(stack.enter_context, cassandra(folder / "cassandra"))
        search = pool.submit(stack.enter_context, opensearch(folder / "opensearch"))
        server = database.result()
        login = {"host": "127.0.0.1", "port": server.port, "user": server.user, "password": server.password}
        _make_keyspace(node.result())
        yield {
            "kafka": broker,
            "postgres": {**login, "database": server.database},
            "cassandra": node.result(),
            "opensearch": search.result(),
        }


def _make_keyspace(port: int) -> None:
    session = Cassandra(("127.0.0.1",), port, "sinks", "any", ("id",))._session()
    session.execute(
        "CREATE KEYSPACE IF NOT EXISTS sinks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )


@pytest.fixture(scope="session")
def sink_config(sink_servers: dict[str, Any]) -> AppConfig:
    return sinks_config(sink_servers, hive=False)


@pytest.fixture(scope="session")
def killed(sink_servers: dict[str, Any], home: Home) -> dict[str, int]:
    """A process that was writing one batch to every sink and was killed in the middle: how many rows each had taken."""
    spec = home.root / "servers.json"
    spec.write_text(json.dumps(sink_servers))
    log = home.root / "killed.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, HERE / "sinks_until_killed.py", spec, home.root],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(HERE)},
            start_new_session=True,
            text=True,
        )
    taken: dict[str, int] = {}
    assert process.stdout is not None
    try:
        for line in process.stdout:
            taken = json.loads(line)
            if all(taken.values()):
                break
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert taken, log.read_text()[-3000:]
    assert all(0 < count < KILLED_ROWS for count in taken.values()), f"{taken}\n{log.read_text()[-3000:]}"
    return taken
