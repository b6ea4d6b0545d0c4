"""Which key is active is asked of the owner: where a statement sees no rows (decision 24), the answer would be that
nothing is encrypted."""

from django.db import migrations

DEFINER = "ALTER FUNCTION encryption_active_version(uuid) SECURITY DEFINER SET search_path = public, pg_temp"
BACK = "ALTER FUNCTION encryption_active_version(uuid) SECURITY INVOKER RESET search_path"


class Migration(migrations.Migration):
    dependencies = [("encryption", "0001_initial")]
    operations = [migrations.RunSQL(DEFINER, BACK)]
