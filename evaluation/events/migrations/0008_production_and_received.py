"""Answers in production and their rewards are noted as events; so is a received reward, under its own id."""

from django.db import migrations, models

TRIGGERS = """
-- A received reward goes on as it came, once its trajectory is known.
CREATE FUNCTION events_note_received_reward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events_outboxevent (message_id, organization_id, kind, key, month, data, created_at)
    SELECT gen_random_uuid(), t.organization_id, 'reward', t.id, t.month,
        jsonb_build_object('received', NEW.id), clock_timestamp()
    FROM experiences_trajectory t
    JOIN events_eventpublisher p ON p.organization_id = t.organization_id
    WHERE t.id = NEW.record_id AND t.organization_id = NEW.organization_id
        AND t.purpose IN ('training', 'received');
    RETURN NULL;
END $$;
CREATE TRIGGER events_noted AFTER INSERT ON events_receivedreward
    FOR EACH ROW WHEN (NEW.record_id IS NOT NULL) EXECUTE FUNCTION events_note_received_reward();
CREATE TRIGGER events_matched AFTER UPDATE OF record_id ON events_receivedreward
    FOR EACH ROW WHEN (OLD.record_id IS NULL AND NEW.record_id IS NOT NULL)
    EXECUTE FUNCTION events_note_received_reward();

-- One statement for a batch of answers. Shadows, refusals and what may not be recorded are no answers to learn from.
CREATE FUNCTION events_note_traces() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events_outboxevent (message_id, organization_id, kind, key, data, created_at)
    SELECT gen_random_uuid(), t.organization_id, 'trace', t.id, '{}', clock_timestamp()
    FROM noted t
    JOIN events_eventpublisher p ON p.organization_id = t.organization_id AND p.production
    WHERE t.agent_id IS NOT NULL AND t.arm <> 'shadow' AND t.status IN ('ok', 'failed') AND t.request <> '{}'::jsonb;
    RETURN NULL;
END $$;
CREATE TRIGGER events_noted AFTER INSERT ON serving_productiontrace
    REFERENCING NEW TABLE AS noted FOR EACH STATEMENT EXECUTE FUNCTION events_note_traces();

-- The first reward of an answer, and each that feedback changes.
CREATE FUNCTION events_note_feedback() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events_outboxevent (message_id, organization_id, kind, key, data, created_at)
    SELECT gen_random_uuid(), NEW.organization_id, 'feedback', NEW.id, '{}', clock_timestamp()
    FROM events_eventpublisher p WHERE p.organization_id = NEW.organization_id AND p.production;
    RETURN NULL;
END $$;
CREATE TRIGGER events_rewarded AFTER UPDATE OF reward, components ON serving_productiontrace
    FOR EACH ROW WHEN (
        NEW.reward IS NOT NULL AND NEW.agent_id IS NOT NULL AND NEW.request <> '{}'::jsonb
        AND (OLD.reward IS DISTINCT FROM NEW.reward OR OLD.components IS DISTINCT FROM NEW.components)
    )
    EXECUTE FUNCTION events_note_feedback();

-- No stream keeps an event for longer than 30 days: what is older needs no look into the outbox.
CREATE FUNCTION events_note_erased_traces() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events_erasedmessage (organization_id, stream, sequence, mark)
    SELECT o.organization_id, CASE o.kind WHEN 'trace' THEN 'RL_TRAJECTORIES' ELSE 'RL_REWARDS' END,
        o.sequence, o.message_id::text
    FROM gone g JOIN events_outboxevent o ON o.key = g.id AND o.kind IN ('trace', 'feedback')
    WHERE o.withheld = '' AND g.created_at > now() - interval '31 days';
    RETURN NULL;
END $$;
CREATE TRIGGER events_erased AFTER DELETE ON serving_productiontrace
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION events_note_erased_traces();
"""

BACK = """
DROP TRIGGER events_noted ON events_receivedreward;
DROP TRIGGER events_matched ON events_receivedreward;
DROP TRIGGER events_noted ON serving_productiontrace;
DROP TRIGGER events_rewarded ON serving_productiontrace;
DROP TRIGGER events_erased ON serving_productiontrace;
DROP FUNCTION events_note_received_reward, events_note_traces, events_note_feedback, events_note_erased_traces;
"""
HELP = "On: answers in production and their rewards are published too."


class Migration(migrations.Migration):
    dependencies = [
        ("events", "0007_not_news"),
        ("serving", "0021_key_spending_in_micros"),
    ]

    operations = [
        # Who published before agreed to the trajectories of training, and not to the words of users.
        migrations.AddField("eventpublisher", "production", models.BooleanField(default=False, help_text=HELP)),
        migrations.AlterField("eventpublisher", "production", models.BooleanField(default=True, help_text=HELP)),
        migrations.AlterField(
            "outboxevent",
            "kind",
            models.CharField(
                choices=[
                    ("trajectory", "Trajectory"),
                    ("reward", "Reward"),
                    ("status", "Training status"),
                    ("deployed", "Deployment"),
                    ("request", "Training request"),
                    ("trace", "Answer in production"),
                    ("feedback", "Reward of an answer in production"),
                ],
                max_length=10,
            ),
        ),
        migrations.RunSQL(TRIGGERS, BACK),
    ]
