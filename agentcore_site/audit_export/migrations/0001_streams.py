"""Where an organisation's audit log is sent."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenancy", "0009_key_limits"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditStream",
            fields=[
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="tenancy.organization",
                    ),
                ),
                ("url", models.URLField(max_length=500)),
                ("secret_version", models.PositiveIntegerField(default=1, editable=False)),
                ("paused", models.BooleanField(default=False)),
                ("sent_seal", models.BigIntegerField(default=0, editable=False)),
                ("sent_number", models.BigIntegerField(default=0, editable=False)),
                ("sent_lines", models.BigIntegerField(default=0, editable=False)),
                ("sent_at", models.DateTimeField(editable=False, null=True)),
                ("batch_id", models.UUIDField(editable=False, null=True)),
                ("batch_seal", models.BigIntegerField(default=0, editable=False)),
                ("batch_number", models.BigIntegerField(default=0, editable=False)),
                ("tries", models.PositiveIntegerField(default=0, editable=False)),
                ("try_after", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("error", models.CharField(blank=True, editable=False, max_length=300)),
                ("failing_since", models.DateTimeField(editable=False, null=True)),
                (
                    "told_at",
                    models.DateTimeField(
                        editable=False, help_text="When its admins were told that it is stuck.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["organization"],
            },
        ),
    ]
