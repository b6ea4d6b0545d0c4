"""A trajectory's reward is what was learned from; what it was paid before its group was ranked is a column beside it.

A rollout's row is written as it ends, and a reward that ranks a group pays once the group is complete. Until now the
row kept the first payment, and the second stood in the group's row only.
"""

from django.db import migrations, models

TABLE = """
ALTER TABLE experiences_trajectory ADD COLUMN reward_before_ranking double precision;

-- Still append-only, but for one thing, once: the group's payment takes the place of the one before it, which is kept.
CREATE OR REPLACE FUNCTION experiences_trajectory_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.reward_before_ranking IS NULL AND (OLD.reward IS NULL OR NEW.reward_before_ranking = OLD.reward)
        AND to_jsonb(NEW) - 'reward' - 'reward_before_ranking' = to_jsonb(OLD) - 'reward' - 'reward_before_ranking'
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'trajectories are append-only: an UPDATE was refused';
END $$;

UPDATE experiences_trajectory t
SET reward = g.rewards[t.rollout + 1],
    reward_before_ranking = CASE
        WHEN t.reward IS NOT NULL THEN t.reward
        WHEN t.evidence #>> '{reward,by}' = 'reward' THEN (t.evidence #>> '{reward,measure}')::double precision
    END
FROM experiences_grouprecord g
WHERE g.job_id = t.job_id AND g.iteration = t.iteration AND g.scenario = t.scenario AND t.purpose = 'training'
    AND t.rollout < cardinality(g.rewards) AND g.rewards[t.rollout + 1] IS DISTINCT FROM t.reward;
"""

BACK = """
CREATE OR REPLACE FUNCTION experiences_trajectory_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'trajectories are append-only: an UPDATE was refused';
END $$;
ALTER TABLE experiences_trajectory DROP COLUMN reward_before_ranking;
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0018_texts_whose_lessons_hold")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(TABLE, BACK)],
            state_operations=[
                migrations.AddField("trajectoryrecord", "reward_before_ranking", models.FloatField(null=True))
            ],
        )
    ]
