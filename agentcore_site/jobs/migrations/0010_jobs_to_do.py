"""What an autoscaler asks, over all organisations: a function of the owner's, since the policies of rows (decision 24)
show an unknown program none."""

from django.db import migrations

FUNCTION = """
CREATE FUNCTION jobs_to_do() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*) FROM jobs_job
    WHERE status IN ('queued', 'running') AND (not_before IS NULL OR not_before <= clock_timestamp())
$$;
REVOKE ALL ON FUNCTION jobs_to_do() FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0009_key_away")]
    operations = [migrations.RunSQL(FUNCTION, "DROP FUNCTION jobs_to_do()")]
