"""OpenSearch, and Elasticsearch through its compatible API: one document per key.

The document's id is made from the key, so that writing a row again replaces it. An index that we create
remembers Spark's types in its mapping's `_meta`; decimals are kept as text, timestamps as ISO 8601 to the microsecond.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rekappa.errors import SinkError
from rekappa.sinks.changes import SPARK_TAKES, Changes, Step, TypeRules, compare, widening
from rekappa.sinks.clients import client
from rekappa.sinks.fit import columns_of
from rekappa.sinks.service import Service, schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window

_ID_BYTES = 512
_RULES = TypeRules(
    takes=SPARK_TAKES,
    widens=widening(),
    instead="OpenSearch alters no field's type: give it a new name, or write to a new index",
)
_TYPES = {
    "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "float": "float", "double": "double",
    "boolean": "boolean", "string": "keyword", "binary": "binary", "date": "date", "timestamp": "date",
    "timestamp_ntz": "date",
}  # fmt: skip
_BACK = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "float": "float", "double": "double",
    "boolean": "boolean", "keyword": "string", "text": "string", "binary": "binary", "date": "timestamp",
}  # fmt: skip


def document_id(key: tuple[str, ...], row: dict[str, Any]) -> str:
    """The same key gives the same id; one that is too long for the server is hashed."""
    values = [_json(row[column]) for column in key]
    written = str(values[0]) if len(values) == 1 else json.dumps(values, ensure_ascii=False)
    return written if len(written.encode()) <= _ID_BYTES else hashlib.sha256(written.encode()).hexdigest()


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _json(one) for name, one in value.items()}
    return [_json(one) for one in value] if isinstance(value, list) else value


def _python(value: Any, kind: str) -> Any:
    """A value from a document as Spark's type of its column wants it."""
    if value is None:
        return None
    if kind in ("timestamp", "timestamp_ntz"):
        moment = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else datetime.fromisoformat(value)
        return moment if kind == "timestamp_ntz" or moment.tzinfo else moment.replace(tzinfo=UTC)
    if kind == "date":
        return date.fromisoformat(value)
    if kind.startswith("decimal"):
        return Decimal(str(value))
    return base64.b64decode(value) if kind == "binary" else value


def _mapping_of(schema: StructType) -> dict[str, Any]:
    """The mapping of an index for these columns; nested ones are left to the server."""
    fields = {}
    for name, kind in columns_of(schema).items():
        if kind.startswith("decimal"):
            fields[name] = {"type": "keyword"}
        elif kind in _TYPES:
            fields[name] = {"type": _TYPES[kind]}
    return {"_meta": {"rekappa": {"schema": schema.json()}}, "properties": fields}


@dataclass(frozen=True, slots=True)
class OpenSearch(Service):
    url: str
    index: str
    key: tuple[str, ...]
    event_time: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def _client(self) -> Any:
        library = client("opensearchpy", "opensearch")
        login = (self.user, self.password) if self.user else None
        return library.OpenSearch(self.url, http_auth=login, timeout=60, max_retries=3, retry_on_timeout=True)

    def _mapping(self, search: Any) -> dict[str, Any] | None:
        """The index's mapping, None when there is no such index."""
        errors = client("opensearchpy.exceptions", "opensearch")
        try:
            return dict(next(iter(search.indices.get_mapping(index=self.index).values()))["mappings"])
        except errors.NotFoundError:
            return None
        except errors.ConnectionError as error:
            raise SinkError(
                f"Cannot reach OpenSearch at {self.url}: {type(error).__name__}",
                hint="Check url, user and password of the sink, and that the server is up.",
            ) from None

    def prepare(self, schema: StructType) -> None:
        search = self._client()
        if self._mapping(search) is None:
            search.indices.create(index=self.index, body={"mappings": _mapping_of(schema)})

    def changes(self, schema: StructType) -> Changes:
        where, mapping = f"OpenSearch index {self.index}", self._mapping(self._client())
        if mapping is None:
            return Changes(where)
        return compare(where, columns_of(schema), columns_of(self._typed(mapping)), _RULES)

    def evolve(self, steps: Sequence[Step]) -> None:
        """Add the fields to the mapping, and to the types that it remembers."""
        from pyspark.sql.types import DataType, StructField, StructType

        search = self._client()
        mapping = self._mapping(search) or {}
        new = {step.column: StructField(step.column, DataType.fromDDL(step.kind)) for step in steps}
        whole = StructType(list(({one.name: one for one in self._typed(mapping)} | new).values()))
        body = {
            "_meta": {**mapping.get("_meta", {}), **_mapping_of(whole)["_meta"]},
            "properties": _mapping_of(StructType(list(new.values())))["properties"],
        }
        search.indices.put_mapping(index=self.index, body=body)

    @staticmethod
    def _remembered(mapping: dict[str, Any]) -> StructType | None:
        from pyspark.sql.types import StructType

        written = mapping.get("_meta", {}).get("rekappa", {}).get("schema")
        return StructType.fromJson(json.loads(written)) if written else None

    @classmethod
    def _kinds(cls, mapping: dict[str, Any]) -> dict[str, str]:
        """Columns and Spark's names of their types; needs no Spark, for it also runs in tasks."""
        remembered = cls._remembered(mapping)
        if remembered is not None:
            return {one.name: one.dataType.simpleString() for one in remembered}
        return {name: _BACK.get(one.get("type", ""), "string") for name, one in mapping.get("properties", {}).items()}

    @classmethod
    def _typed(cls, mapping: dict[str, Any]) -> StructType:
        return cls._remembered(mapping) or schema_of(cls._kinds(mapping))

    def schema(self) -> StructType:
        search = self._client()
        mapping = self._mapping(search)
        if mapping is None:
            raise SinkError(f"Cannot read OpenSearch index {self.index}: it does not exist")
        # What was written is found only after a refresh.
        search.indices.refresh(index=self.index)
        return self._typed(mapping)

    def upsert(self, batches: Iterable[Any]) -> int:
        def action(row: dict[str, Any]) -> dict[str, Any]:
            name = document_id(self.key, row)
            return {"_op_type": "index", "_index": self.index, "_id": name, "_source": _json(row)}

        # Batch by batch, so that what a cap on rows per second let pass is sent at once and no more.
        return sum(self._bulk(action(row) for row in batch.to_pylist()) for batch in batches)

    def delete(self, batches: Iterable[Any]) -> int:
        def action(row: dict[str, Any]) -> dict[str, Any]:
            return {"_op_type": "delete", "_index": self.index, "_id": document_id(self.key, row)}

        return sum(self._bulk(action(row) for row in batch.to_pylist()) for batch in batches)

    def _bulk(self, actions: Iterable[dict[str, Any]]) -> int:
        helpers = client("opensearchpy.helpers", "opensearch")
        done = 0
        for worked, said in helpers.streaming_bulk(
            self._client(), actions, chunk_size=1000, raise_on_error=False, max_retries=3
        ):
            ((action, answer),) = said.items()
            if not worked and not (action == "delete" and answer.get("status") == 404):
                reason = answer.get("error", {})
                what = reason.get("reason") if isinstance(reason, dict) else reason
                raise SinkError(f"Cannot {action} document {answer.get('_id')!r} in index {self.index}: {what}")
            done += 1
        return done

    def look_up(self, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
        search = self._client()
        kinds = self._kinds(self._mapping(search) or {})
        for keys in batches:
            names = [document_id(self.key, row) for row in keys.to_pylist()]
            for one in search.mget(index=self.index, body={"ids": names})["docs"]:
                if one.get("found"):
                    yield {name: _python(one["_source"].get(name), kind) for name, kind in kinds.items()}

    def parts(self, wanted: int) -> int:
        """One part per shard."""
        settings = self._client().indices.get_settings(index=self.index)
        return int(next(iter(settings.values()))["settings"]["index"]["number_of_shards"])

    def read(self, part: int, parts: int, window: Window | None) -> Iterator[dict[str, Any]]:
        search = self._client()
        kinds = self._kinds(self._mapping(search) or {})
        query: dict[str, Any] = {"match_all": {}}
        if window is not None and self.event_time:
            bounds = {"gte": window.start.isoformat(), "lt": window.end.isoformat()}
            query = {"range": {self.event_time: bounds}}
        helpers = client("opensearchpy.helpers", "opensearch")
        for hit in helpers.scan(
            search, query={"query": query}, index=self.index, size=2000, preference=f"_shards:{part}"
        ):
            yield {name: _python(hit["_source"].get(name), kind) for name, kind in kinds.items()}
