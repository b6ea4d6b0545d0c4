"""Operations as a model proposes them: the schema of its answer, and each as a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Kind = Literal["ADD", "UPDATE", "DELETE", "MERGE", "NONE"]
_SYNONYMS: Final = {"MODIFY": "UPDATE", "EDIT": "UPDATE", "REMOVE": "DELETE", "KEEP": "NONE", "NOOP": "NONE"}
MAX_OPERATIONS: Final = 20


@dataclass(frozen=True, slots=True)
class Operation:
    """One change that is proposed. ``id`` is what UPDATE and DELETE are about, ``ids`` what MERGE joins."""

    op: Kind
    text: str = ""
    id: str = ""
    ids: tuple[str, ...] = ()
    reason: str = ""


class _Said(BaseModel):
    model_config = ConfigDict(extra="ignore")

    reason: str = Field("", max_length=2000, description="Why, in a few words.")


class Add(_Said):
    """A lesson that is new."""

    op: Literal["ADD"]
    text: str = Field(min_length=1, max_length=2000, description="The new lesson's text.")


class Update(_Said):
    """A better text for a lesson that is there."""

    op: Literal["UPDATE"]
    id: str = Field(min_length=1, max_length=100, description="The id of the lesson.")
    text: str = Field(min_length=1, max_length=2000, description="The lesson's better text.")


class Delete(_Said):
    """A lesson that proved wrong."""

    op: Literal["DELETE"]
    id: str = Field(min_length=1, max_length=100, description="The id of the lesson.")


class Merge(_Said):
    """Lessons that say the same."""

    op: Literal["MERGE"]
    ids: list[str] = Field(min_length=2, max_length=10, description="The ids of the lessons.")
    text: str = Field(min_length=1, max_length=2000, description="One text for all of them.")


class Nothing(_Said):
    """Nothing has to change."""

    op: Literal["NONE"]


class Operations(BaseModel):
    """What a model answers when it is asked for changes."""

    model_config = ConfigDict(extra="ignore")

    operations: list[Add | Update | Delete | Merge | Nothing] = Field(
        max_length=MAX_OPERATIONS, description="The changes, none if nothing is new."
    )

    @field_validator("operations", mode="before")
    @classmethod
    def _by_any_name(cls, value: Any) -> Any:
        """Accepts the names that models use for operations, in any case, and their usual synonyms."""
        if not isinstance(value, list):
            return value
        return [_named(one) for one in value]

    def plain(self) -> list[Operation]:
        return [
            Operation(
                operation.op,
                getattr(operation, "text", ""),
                getattr(operation, "id", ""),
                tuple(getattr(operation, "ids", ())),
                operation.reason,
            )
            for operation in self.operations
        ]


def _named(value: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("op"), str):
        return value
    named = value["op"].strip().upper()
    return value | {"op": _SYNONYMS.get(named, named)}
