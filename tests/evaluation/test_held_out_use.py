"""Uses of held-out queries: what had the model's former name goes on."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.db import connection

pytestmark = pytest.mark.django_db


def test_groups_keep_their_permissions_under_the_new_name() -> None:
    migration, editor = import_module("evaluation.migrations.0004_held_out_use"), SimpleNamespace(connection=connection)
    group = Group.objects.create(name="auditors")
    group.permissions.add(Permission.objects.get(codename="view_heldoutuse"))
    migration.backwards(apps, editor)
    assert group.permissions.get().codename == "view_heldoutlook"
    migration.forwards(apps, editor)
    kept = group.permissions.get()
    assert (kept.codename, kept.name) == ("view_heldoutuse", "Can view held out use")
