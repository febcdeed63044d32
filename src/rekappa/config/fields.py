"""The kinds of values that `rekappa.yaml` holds, and the model that every part of it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr

from rekappa.config.origin import is_secret
from rekappa.timeline import parse_duration

Option = str | int | float | bool | SecretStr


def _duration(value: Any) -> Any:
    """A length of time always has a unit; only zero needs none."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool | int | float) and (value != 0 or isinstance(value, bool)):
        raise ValueError(f"{value} has no unit: write it like '15 minutes'")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


def _sealed(options: dict[str, Option]) -> dict[str, Option]:
    """Options whose name says that they are secret become secret, so that no log shows them."""
    return {
        key: SecretStr(str(value)) if is_secret((key,)) and not isinstance(value, SecretStr | bool) else value
        for key, value in options.items()
    }


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]
Options = Annotated[dict[str, Option], AfterValidator(_sealed)]
Int = Annotated[int, BeforeValidator(_number)]
Float = Annotated[float, BeforeValidator(_number)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)
