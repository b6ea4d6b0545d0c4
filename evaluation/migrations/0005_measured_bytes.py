"""An evaluation names the bytes that it measured. Those of earlier releases measured the checkpoint's present bytes."""

from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def forwards(apps: Any, editor: Any) -> None:
    alias = editor.connection.alias
    checkpoints = apps.get_model("training", "PolicyCheckpoint").objects.using(alias)
    bytes_of = checkpoints.filter(pk=OuterRef("checkpoint_id")).values("sha256")
    apps.get_model("evaluation", "EvaluationRun").objects.using(alias).update(sha256=Subquery(bytes_of))


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0004_held_out_use"), ("training", "__first__")]

    operations = [
        migrations.AddField(
            "EvaluationRun",
            "sha256",
            models.CharField(
                blank=True,
                default="",
                editable=False,
                help_text="Of the measured bytes: a proof is of these alone.",
                max_length=64,
            ),
            preserve_default=False,
        ),
        migrations.RunPython(forwards, migrations.RunPython.noop),
    ]
