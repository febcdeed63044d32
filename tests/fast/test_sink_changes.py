"""What a table needs to take rows: decided by names and types alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import RunError, SinkError
from rekappa.runs.migration import SinkMigration, refuse_misfit
from rekappa.sinks import cassandra, hive, iceberg, opensearch, postgres
from rekappa.sinks.changes import Changes, Step, TypeRules, compare, require_fit

SPARK = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(8,2)", "decimal(12,2)", "string")
PG = ("smallint", "integer", "bigint", "real", "double precision", "numeric(8,2)", "numeric(12,2)", "text", "jsonb")
KINDS = [(iceberg._RULES, SPARK), (hive._RULES, SPARK), (opensearch._RULES, SPARK), (cassandra._RULES, SPARK[:6])]
KINDS += [(postgres._RULES, PG)]


@pytest.mark.parametrize(("rules", "types"), KINDS)
@given(data=st.data())
def test_a_table_that_made_its_steps_takes_the_rows_and_none_is_narrowed(
    rules: TypeRules, types: tuple[str, ...], data: st.DataObject
) -> None:
    columns = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(types))
    rows, table = data.draw(columns), data.draw(columns)
    found = compare("t", rows, table, rules)
    altered = table | {step.column: step.kind for step in found.steps}
    again = compare("t", rows, altered, rules)
    assert again.steps == ()
    assert again.stuck == found.stuck
    assert {step.column for step in found.steps if step.was is None} == rows.keys() - table.keys()
    assert all(types.index(step.was) < types.index(step.kind) for step in found.steps if step.was is not None)
    assert compare("t", table, table, rules).fits


def test_each_kind_says_what_it_can_and_what_is_possible_instead() -> None:
    rows, table = {"ID": "bigint", "more": "string", "at": "date"}, {"id": "int", "at": "timestamp", "old": "string"}
    found = compare("lake.a.b", rows, table, iceberg._RULES)
    assert found.steps == (Step("id", "bigint", "int"), Step("more", "string"))
    changed, removed = found.stuck
    assert changed.startswith("column at is date in the rows and timestamp in the table (Iceberg widens")
    assert removed.startswith("the table's column old is not in the rows (let the job make it")
    assert "has no type" in compare("t", {"id": "array<void>"}, {}, iceberg._RULES).stuck[0]
    assert "alters no type" in compare("t", {"id": "bigint"}, {"id": "int"}, hive._RULES).stuck[0]
    assert "new index" in compare("t", {"id": "bigint"}, {"id": "int"}, opensearch._RULES).stuck[0]
    assert "Cassandra alters no type" in compare("t", {"id": "bigint"}, {"id": "int"}, cassandra._RULES).stuck[0]
    assert compare("t", {"a": "numeric(9,2)"}, {"a": "numeric(8,2)"}, postgres._RULES).steps == (
        Step("a", "numeric(9,2)", "numeric(8,2)"),
    )
    assert compare("t", {"a": "numeric(9,3)"}, {"a": "numeric(9,2)"}, postgres._RULES).stuck
    kept = compare("t", {"a": "integer"}, {"a": "bigint", "extra": "text"}, postgres._RULES)
    assert kept == Changes("t", unfilled=("extra",))
    assert kept.fits


def test_refusals_name_the_step_and_the_command() -> None:
    lacking = Changes("lake.a.b", (Step("more", "int"), Step("n", "bigint", "int")))
    with pytest.raises(
        SinkError, match=r"lake\.a\.b: it would have to add column more \(int\); it would have to widen"
    ):
        require_fit(lacking)
    with pytest.raises(RunError, match="Cannot backfill sink 'plays': lake") as caught:
        refuse_misfit("backfill", "rmi", SinkMigration("plays", lacking))
    assert "`rekappa migrate rmi`" in str(caught.value.hint)
    assert "sinks.plays.evolve: true" in str(caught.value.hint)
    refuse_misfit("publish", "rmi", SinkMigration("plays", Changes("lake.a.b")))
