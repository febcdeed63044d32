"""Fixtures: a run store of either kind, empty for each test, and the PostgreSQL that one of them needs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.postgres import PostgresServer, postgres
from sqlalchemy import text
from sqlalchemy.engine import URL

from rekappa.store.address import Address
from rekappa.store.dialects import dialect_of


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The server's address, its password in it."""
    server = postgres_server
    url = URL.create("postgresql", server.user, server.password, "127.0.0.1", server.port, server.database)
    return url.render_as_string(hide_password=False)


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[str]:
    """An address of a run store that nobody has used."""
    schema = f"Test {secrets.token_hex(4)}"
    found = f"{postgres_url}?schema={schema.replace(' ', '%20')}"
    yield found
    engine = dialect_of(Address.parse(found)).engine
    with engine.begin() as db:
        db.execute(text(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'))
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What REKAPPA_STORE would say: an empty store of either kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_store"))
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
def address(store_url: str) -> Address:
    return Address.parse(store_url)
