import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import agentcore_site.ids


class Migration(migrations.Migration):
    dependencies = [
        ("tenancy", "0013_single_sign_on"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Passkey",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=agentcore_site.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=60)),
                ("credential_id", models.CharField(editable=False, max_length=1400, unique=True)),
                ("key", models.BinaryField()),
                ("sign_count", models.BigIntegerField(default=0, editable=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("used_at", models.DateTimeField(editable=False, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="passkeys",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["created_at"]},
        ),
    ]
