"""The model `HeldOutLook` is `HeldOutUse`. Its table, the constraints and the rows stay; no SQL changes them."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

ACTIONS = ("add", "change", "delete", "view")


def rename_permissions(apps: Any, editor: Any, old: str, new: str) -> None:
    """Groups keep what they were given. Django renames the content type itself, but not its permissions."""
    permissions = apps.get_model("auth", "Permission").objects.using(editor.connection.alias)
    for action in ACTIONS:
        permissions.filter(content_type__app_label="evaluation", codename=f"{action}_heldout{old}").update(
            codename=f"{action}_heldout{new}", name=f"Can {action} held out {new}"
        )


def forwards(apps: Any, editor: Any) -> None:
    rename_permissions(apps, editor, "look", "use")


def backwards(apps: Any, editor: Any) -> None:
    rename_permissions(apps, editor, "use", "look")


class Migration(migrations.Migration):
    dependencies = [
        ("evaluation", "0003_words_of_baselines"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.AlterModelTable("HeldOutLook", "evaluation_heldoutlook"),
        migrations.RenameModel("HeldOutLook", "HeldOutUse"),
        migrations.AlterField(
            "HeldOutUse",
            "evaluation",
            models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="held_out_use",
                to="evaluation.evaluationrun",
            ),
        ),
        migrations.RunPython(forwards, backwards),
    ]
