"""The partitioned trajectory table. Plain SQL: Django can't declare partitions."""

from django.db import migrations

TABLE = """
CREATE TABLE experiences_trajectory (
    id uuid NOT NULL,
    month date NOT NULL,
    organization_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    job_id uuid NOT NULL,
    purpose varchar(12) NOT NULL,
    arm varchar(10) NOT NULL,
    line varchar(30) NOT NULL,
    iteration integer NOT NULL,
    scenario integer NOT NULL,
    rollout integer NOT NULL,
    query text NOT NULL,
    success boolean NOT NULL,
    outcome double precision NOT NULL,
    reward double precision,
    n_steps smallint NOT NULL,
    truncated boolean NOT NULL,
    error text NOT NULL,
    tokens integer NOT NULL,
    cost_micros bigint NOT NULL,
    duration_ms double precision NOT NULL,
    policy_version varchar(60) NOT NULL,
    model varchar(80) NOT NULL,
    components jsonb NOT NULL,
    evidence jsonb NOT NULL,
    steps jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (month, id)
) PARTITION BY RANGE (month);
CREATE INDEX experiences_trajectory_by_job ON experiences_trajectory (job_id, iteration, scenario, rollout);
CREATE INDEX experiences_trajectory_by_time ON experiences_trajectory (organization_id, created_at DESC);
CREATE TABLE experiences_trajectory_other PARTITION OF experiences_trajectory DEFAULT;

CREATE FUNCTION experiences_trajectory_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'trajectories are append-only: an UPDATE was refused';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE ON experiences_trajectory
    FOR EACH ROW EXECUTE FUNCTION experiences_trajectory_append_only();
"""

BACK = """
DROP TABLE experiences_trajectory;
DROP FUNCTION experiences_trajectory_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0001_initial")]
    operations = [migrations.RunSQL(TABLE, BACK)]
