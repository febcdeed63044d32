"""Asking a schema registry, through the HTTP API that Confluent's, Apicurio, Karapace and Redpanda share.

    schema = look_up(place, 7)            # asked once in a process, however many messages name it

A registry that does not know an id says something about the message. One that does not answer says nothing: that is
raised as `SourceError`, so that a query stops and goes on later instead of leaving out what it could not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from rekappa.errors import SourceError
from rekappa.masking import hidden
from rekappa.sources.payloads.wire import Undecodable

if TYPE_CHECKING:
    from requests import Response, Session

    from rekappa.config.model import Registry

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
TIMEOUT_SECONDS = 10.0
_UNKNOWN_ID, _UNKNOWN_SUBJECT, _UNKNOWN_VERSION = 40403, 40401, 40402


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """A registry and how to log in to it. Goes to Spark's workers with the function that decodes."""

    url: str = field(repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, registry: Registry) -> RegistryPlace:
        """Secrets are revealed here."""
        from rekappa.spark.session import plain

        options = {key: plain(value) for key, value in registry.options.items()}
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise SourceError(
                f"Cannot use the registry's option {unknown[0]!r}", hint=f"Known: {', '.join(sorted(_OPTIONS))}."
            )
        return cls(registry.url.rstrip("/"), tuple(sorted(options.items())))


_OPTIONS = frozenset(
    {
        "basic.auth.user.info",
        "bearer.auth.token",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    }
)


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that one builds on: by which name, and where it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    id: int
    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()


def look_up(place: RegistryPlace, schema_id: int, kind: Kind) -> Schema:
    """The schema of this id; `Undecodable` if there is none, or one of another kind."""
    schema = _client(place).by_id(schema_id)
    if schema.kind != kind:
        raise Undecodable(f"schema {schema_id} is of kind {schema.kind}, not {kind}")
    return schema


def forget_unknown(place: RegistryPlace) -> None:
    """Ask again for ids that the registry did not know. Called for each block of messages: they were in Kafka before
    it is asked, so whichever of them was sent after its schema was registered finds it, and one id asks once a block.
    """
    _client(place).unknown.clear()


def newest(place: RegistryPlace, subject: str) -> Schema:
    """The schema that a subject has now; refuses with `SourceError`."""
    return _client(place).version(subject, "latest")


def referenced(place: RegistryPlace, schema: Schema) -> dict[str, Schema]:
    """All that a schema builds on, directly or not, by name; each after what it builds on itself."""
    found: dict[str, Schema] = {}
    for reference in schema.references:
        one = _client(place).version(reference.subject, reference.version)
        found |= referenced(place, one)
        found[reference.name] = one
    return found


@cache
def _client(place: RegistryPlace) -> _Client:
    return _Client(place)


class _Client:
    """One process's connection, and what it was told."""

    def __init__(self, place: RegistryPlace) -> None:
        self._place, self._session = place, _session(place)
        self._known: dict[int, Schema] = {}
        self.unknown: set[int] = set()
        self._versions: dict[tuple[str, int], Schema] = {}

    def by_id(self, schema_id: int) -> Schema:
        known = self._known.get(schema_id)
        if known is not None:
            return known
        if schema_id not in self.unknown:
            found = self._asked(f"/schemas/ids/{schema_id}", (_UNKNOWN_ID,))
            if found is not None:
                self._known[schema_id] = _read(schema_id, found)
                return self._known[schema_id]
            self.unknown.add(schema_id)
        raise Undecodable(f"unknown schema id {schema_id}")

    def version(self, subject: str, version: int | Literal["latest"]) -> Schema:
        if version != "latest" and (subject, version) in self._versions:
            return self._versions[subject, version]
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        found = self._asked(path, (_UNKNOWN_SUBJECT, _UNKNOWN_VERSION))
        if found is None:
            raise SourceError(
                f"Cannot find {version} schema of subject {subject!r} in the registry at {hidden(self._place.url)}"
                if version == "latest"
                else f"Cannot find version {version} of subject {subject!r} in the registry",
                hint="Register it there, or name the right one: format: {subject: …}",
            )
        try:
            number = int(found["id"])
        except (KeyError, TypeError, ValueError):
            raise self._refused(path, "what answers there is no schema registry") from None
        schema = _read(number, found)
        if version != "latest":
            self._versions[subject, version] = schema
        return schema

    def _asked(self, path: str, unknown: tuple[int, ...]) -> Any:
        """The answer; None where the registry says in its own words that there is no such thing."""
        from requests import JSONDecodeError, RequestException

        try:
            answer = self._session.get(self._place.url + path, timeout=TIMEOUT_SECONDS)
            if answer.status_code == 404 and _code(answer) in unknown:
                return None
            answer.raise_for_status()
            found = answer.json()
            if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
                raise ValueError("what answers there is no schema registry")
            return found
        except JSONDecodeError:
            raise self._refused(path, "what answers there is no schema registry") from None
        except (RequestException, ValueError) as error:
            raise self._refused(path, hidden(str(error))) from None

    def _refused(self, path: str, why: str) -> SourceError:
        return SourceError(
            f"Cannot ask the schema registry at {hidden(self._place.url)} for {path}: {why}",
            hint="Check registries in rekappa.yaml: the address, with its path, and the login.",
        )


def _read(schema_id: int, found: Any) -> Schema:
    references = tuple(Reference(r["name"], r["subject"], int(r["version"])) for r in found.get("references") or ())
    return Schema(schema_id, found.get("schemaType") or "AVRO", found["schema"], references)


def _code(answer: Response) -> int | None:
    try:
        found = answer.json()
    except ValueError:
        return None
    return found.get("error_code") if isinstance(found, dict) else None


def _session(place: RegistryPlace) -> Session:
    from requests import Session
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    options, session = dict(place.options), Session()
    # A registry that is being restarted is no reason to end a query.
    again = Retry(total=4, backoff_factor=0.3, status_forcelist=(429, 502, 503, 504), raise_on_status=False)
    session.mount("http://", HTTPAdapter(max_retries=again))
    session.mount("https://", HTTPAdapter(max_retries=again))
    session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
    if "basic.auth.user.info" in options:
        user, _, password = options["basic.auth.user.info"].partition(":")
        session.auth = (user, password)
    elif "bearer.auth.token" in options:
        session.headers["Authorization"] = f"Bearer {options['bearer.auth.token']}"
    if "ssl.ca.location" in options:
        session.verify = options["ssl.ca.location"]
    if "ssl.certificate.location" in options:
        certificate, key = options["ssl.certificate.location"], options.get("ssl.key.location")
        session.cert = (certificate, key) if key else certificate
    return session
