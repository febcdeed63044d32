"""Where a secret could be seen: what Spark shows and writes, command lines, the run store."""

from __future__ import annotations

import json
from collections.abc import Mapping

import requests
from sqlalchemy import create_engine, inspect, text
from team import Servers, processes

from rekappa.store.address import Address


def leaks(servers: Servers, texts: Mapping[str, str]) -> list[str]:
    return [f"{name} in {where}" for name, secret in servers.secrets().items()
            for where, said in texts.items() if secret in said]  # fmt: skip


def told_by_spark(servers: Servers) -> dict[str, str]:
    """What Spark shows and writes of a running application, and what anybody on these machines can see."""
    found = {f"the command line of {number}": words for number, words in processes().items()} | told_to_the_end(servers)
    page = json.loads(requests.get(f"{servers.cluster.page}/json/", timeout=30).text)["activeapps"][0]["id"]
    address = next(port for port in range(4040, 4060) if _shows(port, page))
    for name in ("environment", "executors", "jobs", "sql?details=true&length=1000"):
        found[f"the UI's {name}"] = requests.get(
            f"http://127.0.0.1:{address}/api/v1/applications/{page}/{name}", timeout=60
        ).text
    assert "spark.sql.catalog.lake.s3.secret-access-key" in found["the UI's environment"], (
        "the setting is shown, masked"
    )
    return found


def told_to_the_end(servers: Servers) -> dict[str, str]:
    """What is left on disks: event logs, and the logs of drivers, workers and executors."""
    always = ("history/**/*", "*/.rekappa/logs/*", "cluster/*/*/**/std*")
    found: dict[str, str] = {}
    for pattern in (*always, "*/stderr", "cluster/*/log"):
        files = [file for file in servers.folder.glob(pattern) if file.is_file()]
        assert files or pattern not in always, pattern
        found |= {str(file): file.read_text(errors="replace") for file in files}
    return found


def _shows(port: int, app: str) -> bool:
    try:
        shown = requests.get(f"http://127.0.0.1:{port}/api/v1/applications", timeout=10).json()
    except (requests.RequestException, ValueError):
        return False
    return any(one["id"] == app for one in shown)


def run_store(servers: Servers) -> str:
    """All that the team's run store holds, as text."""
    address = Address.parse(servers.store)
    engine = create_engine(address.url)
    with engine.connect() as db:
        names = inspect(engine).get_table_names(schema=address.schema)
        assert "runs" in names
        rows = [
            str(tuple(row)) for name in names for row in db.execute(text(f'SELECT * FROM "{address.schema}"."{name}"'))
        ]
    engine.dispose()
    return "\n".join(rows)
