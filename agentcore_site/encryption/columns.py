"""Columns that are encrypted if their organisation enables it. Code that reads and writes rows sees plain values.

A value is decrypted on first access, so that a list that shows none of them decrypts none. Code that writes by COPY or
SQL encrypts with ``Sealer``, and code that reads by SQL decrypts with ``opened``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import models
from django.db.models.query_utils import DeferredAttribute

from agentcore_site.encryption.data_keys import active_key, data_key
from agentcore_site.encryption.envelope import PLAIN, SEALED, OpenKey, version_of
from agentcore_site.lib.registry import Registry

JSON: Final = "jsonb"
TEXT: Final = "text"


@dataclass(frozen=True)
class EncryptedTable:
    """A table with encrypted columns, each of type ``JSON`` or ``TEXT``. ``key``: the columns of its primary key with
    their types; the last one alone names the row."""

    name: str
    key: Mapping[str, str]
    columns: Mapping[str, str]


tables: Registry[EncryptedTable] = Registry("table with encrypted columns", entry_point_group="agentcore.sealed_tables")


class Sealed(str):
    """An encrypted value as it is stored."""

    __slots__ = ()


def place_of(table: str, column: str, organization_id: Any, row_id: Any) -> str:
    """Associated data of an encrypted value: its column and row."""
    return f"{table}.{column}/{organization_id}/{row_id}"


class Sealer:
    """Encrypts values of one organisation, in the transaction that writes them.

    Raises:
        KeyUnavailable: the key can't be read: nothing may be written.
    """

    def __init__(self, organization_id: uuid.UUID) -> None:
        self.organization_id = organization_id
        self.key: OpenKey | None = active_key(organization_id)

    def json(self, table: str, column: str, row_id: Any, written: bytes) -> bytes:
        """A JSON value as it is stored: unchanged, or a JSON string."""
        if self.key is None:
            return written
        return f'"{self.key.seal(written, place_of(table, column, self.organization_id, row_id))}"'.encode()

    def text(self, table: str, column: str, row_id: Any, text: str) -> str:
        if self.key is None or not text:
            return PLAIN + text if text.startswith("sealed:") else text
        return self.key.seal(text.encode(), place_of(table, column, self.organization_id, row_id))


def opened_text(table: str, column: str, organization_id: Any, row_id: Any, stored: str) -> str:
    """Raises:
    KeyUnavailable, Unopenable."""
    if not (version := version_of(stored)):
        return stored.removeprefix(PLAIN)
    place = place_of(table, column, organization_id, row_id)
    return data_key(organization_id, version).open(stored, place).decode()


def opened(table: str, column: str, organization_id: Any, row_id: Any, stored: Any) -> Any:
    """A JSON value; a value that is not encrypted is returned unchanged.

    Raises:
        KeyUnavailable: its key can't be read.
        Unopenable: the value was altered, or moved.
    """
    if not isinstance(stored, str) or not (version := version_of(stored)):
        return stored
    place = place_of(table, column, organization_id, row_id)
    return json.loads(data_key(organization_id, version).open(stored, place))


def opened_stored(table: EncryptedTable, column: str, organization_id: Any, row_id: Any, stored: str) -> str:
    """Plain text of a column, from its text in the database (of JSON, the JSON text).

    Raises:
        KeyUnavailable, Unopenable.
    """
    if table.columns[column] == JSON:
        if not stored.startswith('"sealed:'):
            return stored
        stored = stored[1:-1]
    return opened_text(table.name, column, organization_id, row_id, stored)


class SealedAttribute(DeferredAttribute):
    """A value of a row, decrypted on first access."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        value = super().__get__(instance, owner)
        if isinstance(value, Sealed):
            opening = opened if isinstance(self.field, models.JSONField) else opened_text
            value = opening(
                instance._meta.db_table, self.field.attname, instance.organization_id, instance.pk, str(value)
            )
            instance.__dict__[self.field.attname] = value
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        # Without it a value in the row's dictionary would be read past ``__get__``.
        instance.__dict__[self.field.attname] = value


class SealedJSONField(models.JSONField):
    """JSON (an object or a list, never a string) that is encrypted if its organisation enables it. Queries can't filter
    by its content."""

    descriptor_class = SealedAttribute

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        found = super().from_db_value(value, expression, connection)
        return Sealed(found) if isinstance(found, str) and version_of(found) else found

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        value = super().pre_save(model_instance, add)
        owner = model_instance.organization_id
        if owner is None or (sealer := Sealer(owner)).key is None:
            return value
        written = json.dumps(value).encode()
        return json.loads(sealer.json(model_instance._meta.db_table, self.attname, model_instance.pk, written))

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs  # the column's type does not change


class SealedTextField(models.TextField):  # type: ignore[type-arg]  # not subscriptable when it runs
    """Text that is encrypted if its organisation enables it."""

    descriptor_class = SealedAttribute

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return Sealed(value) if isinstance(value, str) and SEALED.match(value) else value

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        value, owner = super().pre_save(model_instance, add), model_instance.organization_id
        if owner is None:
            return value
        return Sealer(owner).text(model_instance._meta.db_table, self.attname, model_instance.pk, value)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs
