"""Where the storage root is: the project folder, or one address that every machine of a cluster can reach.

    export REKAPPA_STORAGE=s3a://bucket/rekappa
    export REKAPPA_STORAGE='s3a://bucket/rekappa?endpoint=http://minio:9000&region=eu-west-1'

The environment comes first, then the file `storage` of the project folder, which holds the same address; without
either it is the project folder itself. As with the run store, commands that name no app need it, so it stands in no
rekappa.yaml.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from rekappa.errors import ConfigError
from rekappa.masking import hidden
from rekappa.storage.location import Location
from rekappa.storage.systems import S3Files

VARIABLE = "REKAPPA_STORAGE"
_LIKE = "Write it like s3a://BUCKET/FOLDER?region=REGION, hdfs://NAMENODE/FOLDER, or /a/folder/that/all/machines/mount."


def storage_root(folder: Path, environ: Mapping[str, str] | None = None) -> Location:
    """The storage root of the project whose folder this is."""
    told = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    if told:
        return parse_location(told)
    file = folder / "storage"
    try:
        written = file.read_text("utf-8").strip()
    except FileNotFoundError:
        return Location.local(folder)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {file}: {error}") from None
    return parse_location(written, str(file))


def parse_location(text: str, told_by: str = VARIABLE) -> Location:
    """Read an address; refuses one that names no place, or a parameter that its store does not have."""
    at = urlsplit(text)
    options = dict(parse_qsl(at.query, keep_blank_values=True))
    endpoint = options.get("endpoint", "")
    remote = at.scheme not in ("", "file")
    if ":" in at.netloc.rpartition("@")[0] or "@" in endpoint or (remote and hidden(unquote(text)) != unquote(text)):
        # Not repeated: it may hold a password.
        raise ConfigError(
            f"Cannot use the storage of {told_by}: keys do not belong into an address",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role.",
        )
    if not remote:
        path = text.removeprefix("file://").removeprefix("file:")
        if not path.startswith("/"):
            raise ConfigError(f"Cannot use the storage of {told_by}: {text!r} is no absolute path", hint=_LIKE)
        if Path(path).exists() and not Path(path).is_dir():
            raise ConfigError(f"Cannot use the storage of {told_by}: {path} is no folder", hint=_LIKE)
        return Location.local(Path(path))
    kind = _KINDS.get(at.scheme)
    if kind is None or not at.netloc:
        raise ConfigError(f"Cannot use the storage of {told_by}: {f'{at.scheme}://{at.netloc}'!r}", hint=_LIKE)
    return kind(at.netloc, at.path.strip("/"), options, told_by)


def _s3(bucket: str, path: str, options: dict[str, str], told_by: str) -> Location:
    unknown = sorted(options.keys() - {"endpoint", "region", "path-style"})
    if unknown:
        raise ConfigError(
            f"Cannot use the storage of {told_by}: unknown parameter {unknown[0]!r}",
            hint="S3 takes endpoint, region and path-style.",
        )
    endpoint = options.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"Cannot use the storage of {told_by}: endpoint {endpoint!r} is no address",
            hint="Write it like endpoint=https://minio.example.org:9000.",
        )
    # Stores other than Amazon's mostly know buckets by path alone.
    style = options.get("path-style", "true" if endpoint else "false")
    if style not in ("true", "false"):
        raise ConfigError(f"Cannot use the storage of {told_by}: path-style is {style!r}", hint="It is true or false.")
    return Location(S3Files(bucket, endpoint, options.get("region"), style == "true"), f"{bucket}/{path}".rstrip("/"))


def _hadoop(authority: str, path: str, options: dict[str, str], told_by: str, scheme: str) -> Location:
    from rekappa.storage.hadoop import HadoopFiles

    if options:
        raise ConfigError(
            f"Cannot use the storage of {told_by}: {scheme} takes no parameters",
            hint="Say it to Spark: profiles.NAME.spark.hadoop.KEY.",
        )
    return Location(HadoopFiles(f"{scheme}://{authority}"), f"/{path}".rstrip("/"))


_KINDS: dict[str, Callable[[str, str, dict[str, str], str], Location]] = {
    "s3a": _s3,
    "s3": _s3,
    **{name: partial(_hadoop, scheme=name) for name in ("hdfs", "viewfs", "webhdfs", "abfs", "abfss", "gs")},
}
