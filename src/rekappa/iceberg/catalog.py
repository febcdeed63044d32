"""Iceberg tables seen without Spark: the same catalogs as Spark's, opened with PyIceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.config.fields import Option
from rekappa.config.model import AppConfig, Catalog
from rekappa.errors import ConfigError, SourceError
from rekappa.home import Home

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as OpenCatalog
    from pyiceberg.table import Table


def open_catalog(config: AppConfig, name: str, home: Home) -> OpenCatalog:
    """Open one of the app's catalogs. Nothing is created: a catalog that does not exist is refused."""
    from pyiceberg.catalog import load_catalog

    catalog = _named(config, name)
    if catalog.type == "stack" and not home.catalog.exists():
        raise SourceError(
            f"Cannot open catalog {name!r}: {home.catalog} does not exist",
            hint="Start the local stack and archive something first: rekappa up, rekappa archive run.",
        )
    return load_catalog(name, **_properties(catalog, home))


def load_table(config: AppConfig, table: str, home: Home) -> Table:
    """Load the newest state of a table by its full name, catalog included."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    name, _, identifier = table.partition(".")
    if "." not in identifier:
        raise ConfigError(
            f"Cannot find table {table!r}: the name lacks a catalog or a namespace",
            hint="Write it like lake.events.impressions.",
        )
    catalog = _named(config, name)
    try:
        if catalog.type == "hadoop":
            from pyiceberg.table import StaticTable

            return StaticTable.from_metadata(f"{catalog.warehouse}/{identifier.replace('.', '/')}")
        return open_catalog(config, name, home).load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError) as error:
        raise SourceError(
            f"Cannot read table {table!r}: it does not exist in catalog {name!r}",
            hint="Has the archive been written yet? See rekappa archive status.",
        ) from error


def _named(config: AppConfig, name: str) -> Catalog:
    if name not in config.catalogs:
        raise ConfigError(
            f"Cannot open catalog {name!r}: rekappa.yaml has {', '.join(config.catalogs)}",
            hint="The first part of a table's name is its catalog.",
        )
    return config.catalogs[name]


def _properties(catalog: Catalog, home: Home) -> dict[str, str]:
    extra = {key: _plain(value) for key, value in catalog.options.items()}
    if catalog.type == "stack":
        # PyIceberg would create its tables in an older layout than the one Spark asks for.
        return {"type": "sql", "uri": f"sqlite:///{home.catalog}", "init_catalog_tables": "false", **extra}
    known: dict[str, str] = {"type": "sql" if catalog.type == "jdbc" else catalog.type}
    if catalog.uri:
        known["uri"] = _sqlalchemy(catalog.uri) if catalog.type == "jdbc" else catalog.uri
    if catalog.warehouse:
        known["warehouse"] = catalog.warehouse
    if catalog.type == "jdbc":
        known["init_catalog_tables"] = "false"
    return known | extra


def _sqlalchemy(uri: str) -> str:
    """A JDBC address as SQLAlchemy writes it: jdbc:sqlite:/x.db is sqlite:////x.db."""
    plain = uri.removeprefix("jdbc:")
    if plain.startswith("sqlite:") and not plain.startswith("sqlite://"):
        return "sqlite:///" + plain.removeprefix("sqlite:")
    return plain


def _plain(value: Option) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else value.get_secret_value()
