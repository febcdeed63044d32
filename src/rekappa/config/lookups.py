"""What `rekappa.yaml` may say of a lookup: a table that a job sees as it was at an event's time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from rekappa.config.ddl import columns
from rekappa.config.fields import Duration, Float, Int, Model, Names
from rekappa.errors import ConfigError


class LookupBase(Model):
    """What all lookups share: the columns that tell their rows apart."""

    key: Names = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _jobs_say_when(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "as_of" in value:
            raise ValueError("as_of is not said here: the job says which time counts, lookup.join(events, at=COLUMN)")
        return value


class KeptVersions(LookupBase):
    """A table that does not say since when its rows hold: rekappa keeps its versions, each from when it was seen.

    `versions` is the Iceberg table that holds them, `every` how often `rekappa archive lookup` looks, `lead` how long
    after it was seen a change counts: by then every reader has it, so that live and replay agree. A replay of events
    before all that is known is refused, unless `unknown_past` is accepted.
    """

    versions: str | None = None
    every: Duration = Field(default=timedelta(minutes=1), gt=timedelta())
    lead: Duration = Field(default=timedelta(seconds=30), gt=timedelta())
    unknown_past: Literal["refuse", "accept"] = "refuse"


class IcebergLookup(KeptVersions):
    """An Iceberg table. With `valid_from` it holds the versions itself, without it is one whose versions are kept."""

    type: Literal["iceberg"]
    table: str
    valid_from: str | None = None
    sequence: str | None = None
    deleted: str | None = None

    @model_validator(mode="after")
    def _versions_need_validity(self) -> Self:
        told = [name for name in ("sequence", "deleted") if getattr(self, name) is not None]
        if told and self.valid_from is None:
            raise ValueError(f"{told[0]}: {getattr(self, told[0])} needs valid_from, the column it ranks or ends")
        if self.valid_from is not None and self.versions is not None:
            raise ValueError("valid_from and versions exclude each other: such a table holds its versions itself")
        return self


class PostgresLookup(KeptVersions):
    """A PostgreSQL table, whose versions are kept."""

    type: Literal["postgres"]
    host: str = "127.0.0.1"
    port: Int = 5432
    database: str
    table: str
    user: str | None = None
    password: SecretStr | None = None


class ChangesLookup(LookupBase):
    """A topic of changes, which is a source with an archive: a row is the new version of its key.

    A change counts `lag` after it came into Kafka: by then the router has archived it. `sequence`, a number or a time,
    says which of two changes is the newer one, whichever came first; without it the later one is. `envelope: debezium`
    unpacks Debezium's before, after and op.
    """

    type: Literal["kafka"]
    source: str
    sequence: str | None = None
    deleted: str | None = None
    envelope: Literal["debezium"] | None = None
    lag: Duration = Field(default=timedelta(minutes=5), gt=timedelta())


class ServiceLookup(LookupBase):
    """A service that the job calls. `answer` names the columns of its answer and their types, as Spark writes them.

    With `record` a live run keeps every answer, by key and time of the event, in the Iceberg table `table`, and a
    replay answers from there. `missing` says what a replay does where none was kept: refuse, call the service now, or
    take nulls. `max_calls_per_second` caps the calls of a run, live and replay alike.
    """

    type: Literal["service"]
    answer: str
    record: bool = False
    table: str | None = None
    missing: Literal["refuse", "call", "null"] = "refuse"
    max_calls_per_second: Float | None = Field(default=None, gt=0)

    @field_validator("missing", mode="before")
    @classmethod
    def _null_is_a_word(cls, value: object) -> object:
        """YAML takes the word for nothing at all."""
        return "null" if value is None else value

    @model_validator(mode="after")
    def _answers_have_columns_of_their_own(self) -> Self:
        try:
            named = [column.name for column in columns(self.answer)]
        except ConfigError as error:
            raise ValueError(f"answer: {error.message}") from None
        if not named:
            raise ValueError("answer names no column: write it like 'score DOUBLE, tier STRING'")
        twice = [name for name in named if name in self.key]
        if twice:
            raise ValueError(f"answer and key both have a column {twice[0]!r}")
        return self


KeptTable = IcebergLookup | PostgresLookup
"""Those whose versions rekappa may have to keep."""
LookupTable = Annotated[IcebergLookup | PostgresLookup | ChangesLookup | ServiceLookup, Field(discriminator="type")]
