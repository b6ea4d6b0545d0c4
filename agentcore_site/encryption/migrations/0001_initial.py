"""Data keys, and what the database itself has to know of encrypted values."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

FUNCTIONS = """
-- The version of the key that encrypts what an organisation writes; 0: none. A switch of encryption takes the same lock
-- for itself: it waits for the transactions that asked here, and those who ask meanwhile wait for it. A volatile
-- function, so that its second statement sees what was switched while the first one waited.
CREATE FUNCTION encryption_active_version(organization uuid) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('encryption ' || organization, 0));
    RETURN coalesce((SELECT version FROM encryption_datakey WHERE organization_id = organization AND active), 0);
END $$;

-- The version of the key that encrypted a value; 0: it is plain.
CREATE FUNCTION encryption_version(stored text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(substring(left(stored, 16) from '^sealed:([0-9]{1,4}):')::integer, 0)
$$;
CREATE FUNCTION encryption_version(stored jsonb) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(stored) = 'string' THEN encryption_version(stored #>> '{}') ELSE 0 END
$$;

-- JSON as a text in which words can be looked for: "" where it is encrypted, since short words stand in any base64.
CREATE FUNCTION encryption_readable(stored text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN left(stored, 16) ~ '^"sealed:[0-9]{1,4}:' AND stored ~ '^"sealed:[0-9]+:[A-Za-z0-9+/]*=*"$' THEN ''
        ELSE stored END
$$;
"""

BACK = """
DROP FUNCTION encryption_readable(text);
DROP FUNCTION encryption_version(jsonb);
DROP FUNCTION encryption_version(text);
DROP FUNCTION encryption_active_version(uuid);
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [("tenancy", "0009_key_limits")]

    operations = [
        migrations.CreateModel(
            name="DataKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.PositiveSmallIntegerField()),
                ("holder", models.CharField(help_text="Who has the key that opens it.", max_length=20)),
                ("sealed", models.TextField()),
                ("active", models.BooleanField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.organization"
                    ),
                ),
            ],
            options={"ordering": ["organization", "version"]},
        ),
        migrations.AddConstraint(
            model_name="datakey",
            constraint=models.UniqueConstraint(
                fields=["organization", "version"], name="one_data_key_per_version"
            ),
        ),
        migrations.AddConstraint(
            model_name="datakey",
            constraint=models.UniqueConstraint(
                condition=models.Q(active=True), fields=["organization"], name="one_active_data_key"
            ),
        ),
        migrations.RunSQL(FUNCTIONS, BACK),
    ]
