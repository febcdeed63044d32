"""Fitting a file's columns to the record's: by Iceberg's field ids, whatever the columns were called at the time.

A column that a file does not have yet is null. A type that was widened since is cast. Arrow arrays come out in
exactly the types that Spark expects, so that it takes them without another look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rekappa.replay.files import field_id_of

if TYPE_CHECKING:
    import pyarrow as pa

FieldIds = Mapping[str, int]
"""Dotted path of a field in the record (lists go through `element`, maps through `key` and `value`) to its id."""


def field_ids(schema: Any) -> dict[str, int]:
    """Every field's path and id, from a PyIceberg schema."""
    found: dict[str, int] = {}

    def walk(kind: Any, path: str) -> None:
        for child in getattr(kind, "fields", ()):
            name = child.name if not path else f"{path}.{child.name}"
            found[name] = child.field_id
            walk(child.field_type, name)

    walk(schema.as_struct(), "")
    return found


@dataclass(frozen=True, slots=True)
class Fit:
    """How one field of the record is made from a file. `path` is where the file has it, None where it does not."""

    name: str
    target: pa.DataType
    path: tuple[str, ...] | None
    children: tuple[Fit, ...] = field(default=())

    def columns(self) -> Iterator[str]:
        """The file's columns to read for it."""
        if self.children:
            for child in self.children:
                yield from child.columns()
        elif self.path is not None:
            yield ".".join(self.path)

    def of(self, parent: pa.RecordBatch | pa.StructArray) -> pa.Array:
        """The field's values, from a batch of the file or from the struct around it."""
        import pyarrow as pa

        found = None if self.path is None else _child(parent, self.path[-1])
        if found is None:
            return pa.nulls(len(parent), self.target)
        if not self.children:
            return found if found.type.equals(self.target) else found.cast(self.target)
        mask = found.is_null() if found.null_count else None
        kinds = [self.target.field(at) for at in range(self.target.num_fields)]
        return pa.StructArray.from_arrays([child.of(found) for child in self.children], fields=kinds, mask=mask)


def fit(target: pa.Field, siblings: list[pa.Field], ids: FieldIds, path: str = "", above: tuple[str, ...] = ()) -> Fit:
    """Match one field of the record with the file's fields at the same level."""
    import pyarrow as pa

    name = f"{path}.{target.name}" if path else target.name
    found = _match(siblings, ids.get(name), target.name)
    if found is None:
        return Fit(target.name, target.type, None)
    here = (*above, found.name)
    if not (pa.types.is_struct(target.type) and pa.types.is_struct(found.type)):
        return Fit(target.name, target.type, here)
    inside = [found.type.field(at) for at in range(found.type.num_fields)]
    children = tuple(fit(target.type.field(at), inside, ids, name, here) for at in range(target.type.num_fields))
    if not any(True for child in children for _ in child.columns()):
        return Fit(target.name, target.type, None)
    return Fit(target.name, target.type, here, children)


def _match(siblings: list[pa.Field], wanted: int | None, name: str) -> pa.Field | None:
    known = {field_id_of(one): one for one in siblings}
    if set(known) - {None}:
        return known.get(wanted) if wanted is not None else None
    # Files that were added to the table from elsewhere have no ids: their names are all there is.
    return next((one for one in siblings if one.name == name), None)


def _child(parent: Any, name: str) -> Any:
    import pyarrow as pa

    if isinstance(parent, pa.RecordBatch):
        at = parent.schema.get_field_index(name)
        return parent.column(at) if at >= 0 else None
    at = parent.type.get_field_index(name)
    return parent.field(at) if at >= 0 else None
