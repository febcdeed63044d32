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
        # Lists and maps hold fields too, under fixed names.
        inner = [getattr(kind, name, None) for name in ("element_field", "key_field", "value_field")]
        for child in (*getattr(kind, "fields", ()), *(one for one in inner if one is not None)):
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
        """The file's columns to read for it; a list is read whole."""
        if self.children and not _is_list(self.target):
            for child in self.children:
                yield from child.columns()
        elif self.path is not None:
            yield ".".join(self.path)

    def of(self, parent: pa.RecordBatch | pa.StructArray) -> pa.Array:
        """The field's values, from a batch of the file or from the struct around it."""
        import pyarrow as pa

        found = None if self.path is None else _child(parent, self.path[-1])
        return pa.nulls(len(parent), self.target) if found is None else self._shaped(found)

    def _shaped(self, found: pa.Array) -> pa.Array:
        """The file's values in the record's type."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.children:
            return found if found.type.equals(self.target) else found.cast(self.target)
        mask = found.is_null() if found.null_count else None
        if _is_list(self.target):
            first, last = found.offsets[0].as_py(), found.offsets[-1].as_py()
            values = self.children[0]._shaped(found.values.slice(first, last - first))
            return pa.ListArray.from_arrays(pc.subtract(found.offsets, first), values, type=self.target, mask=mask)
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
    if pa.types.is_list(target.type) and pa.types.is_list(found.type) and pa.types.is_struct(target.type.value_type):
        inner = found.type.value_type
        fields = [inner.field(at) for at in range(inner.num_fields)]
        kinds = [target.type.value_type.field(at) for at in range(target.type.value_type.num_fields)]
        parts = tuple(fit(kind, fields, ids, f"{name}.element") for kind in kinds)
        return Fit(target.name, target.type, here, (Fit("element", target.type.value_type, ("element",), parts),))
    if pa.types.is_map(target.type) and pa.types.is_map(found.type):
        _refuse_renames(target.type, found.type, ids, name)
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


def _refuse_renames(target: Any, found: Any, ids: FieldIds, path: str) -> None:
    """A map's values are cast by name: a field that was renamed there would come out null, so it is refused."""
    import pyarrow as pa

    if pa.types.is_struct(target.item_type) and pa.types.is_struct(found.item_type):
        fields = [found.item_type.field(at) for at in range(found.item_type.num_fields)]
        for at in range(target.item_type.num_fields):
            name = target.item_type.field(at).name
            match = _match(fields, ids.get(f"{path}.value.{name}"), name)
            if match is not None and match.name != name:
                raise ValueError(f"field {name!r} inside the map {path!r} was called {match.name!r} in this file")


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind))


def _child(parent: Any, name: str) -> Any:
    import pyarrow as pa

    if isinstance(parent, pa.RecordBatch):
        at = parent.schema.get_field_index(name)
        return parent.column(at) if at >= 0 else None
    at = parent.type.get_field_index(name)
    return parent.field(at) if at >= 0 else None
