"""Measures of a trajectory, and the SQL that counts it by the hour: once for PostgreSQL, once for ClickHouse.

Both give the relation ``warehouse_measure``: of an organisation, agent, purpose, arm, model, hour, measure and bucket
the number of values ``n``, their sum ``total`` and the sum of their squares ``squares``. Sums of it are means, rates,
deviations and distributions of any span of hours: every dashboard is queries of it, the same for both.

Buckets. ``tenths``: of a reward and its components, ``floor(10 x)`` between -50 and 50; what is beyond is at the
end. ``bits``: of counts and durations, how many binary digits the whole number has: bucket b holds 2^(b-1) to 2^b - 1.
Values beyond 1e100, whose squares are no numbers any more, are not counted.
"""

from __future__ import annotations

from typing import Final

COMPONENT: Final = "component/"
NAME_LENGTH: Final = 80  # of a reward's component
LIMIT: Final = "1e100"
ENDS: Final = 50


def _pg_tenths(value: str) -> str:
    return f"greatest(least(floor({value} * 10), {ENDS}), -{ENDS})::int"


def _pg_bits(value: str) -> str:
    return f"length(ltrim(floor(greatest(least({value}, 1e15), 0))::bigint::bit(64)::text, '0'))"


# The numbers among a reward's components, by name.
PG_COMPONENTS: Final = f"""
    SELECT left(c.key, {NAME_LENGTH}) AS key,
        CASE WHEN abs(c.value::numeric) <= {LIMIT} THEN c.value::numeric::float8 END AS value
    FROM jsonb_each(CASE jsonb_typeof(t.components) WHEN 'object' THEN t.components ELSE '{{}}' END) c
    WHERE jsonb_typeof(c.value) = 'number'"""  # noqa: S608  (our own words)

PG_HOUR: Final = f"""
INSERT INTO warehouse_measure
    (organization_id, agent_id, purpose, arm, model, hour, day, measure, bucket, n, total, squares)
SELECT t.organization_id, t.agent_id, t.purpose, t.arm, t.model, %(hour)s, (%(hour)s AT TIME ZONE 'UTC')::date,
    m.measure, m.bucket, count(*), sum(m.value), sum(m.value * m.value)
FROM experiences_trajectory t CROSS JOIN LATERAL (
    VALUES ('success', 0, t.success::int::float8),
        ('error', 0, (t.error <> '')::int::float8),
        ('cut_off', 0, t.truncated::int::float8),
        ('reward', {_pg_tenths("t.reward")}, t.reward),
        ('steps', {_pg_bits("t.n_steps::float8")}, t.n_steps::float8),
        ('milliseconds', {_pg_bits("t.duration_ms")}, t.duration_ms),
        ('tokens', {_pg_bits("t.tokens::float8")}, t.tokens::float8),
        ('micros', 0, t.cost_micros::float8)
    UNION ALL SELECT '{COMPONENT}' || c.key, {_pg_tenths("c.value")}, c.value FROM ({PG_COMPONENTS}) c
) m(measure, bucket, value)
WHERE t.organization_id = %(organization)s AND t.created_at >= %(hour)s
    AND t.created_at < %(hour)s + interval '1 hour' AND abs(m.value) <= {LIMIT}
GROUP BY t.agent_id, t.organization_id, t.purpose, t.arm, t.model, m.measure, m.bucket
"""  # noqa: S608  (our own words)


def _ch_tenths(value: str) -> str:
    return f"toInt16(greatest(least(floor({value} * 10), {ENDS}), -{ENDS}))"


def _ch_bits(value: str) -> str:
    whole = f"toUInt64(greatest(least(toFloat64({value}), 1e15), 0.0))"
    return f"if({whole} = 0, toInt16(0), toInt16(floor(log2({whole}))) + toInt16(1))"


# A row for each value: summed once, by the query. Summed by the hour first, it took ten times as long.
CH_VIEW: Final = f"""
CREATE OR REPLACE VIEW warehouse_measure AS
SELECT organization_id, agent_id, purpose, arm, model, hour, toDate(hour, 'UTC') AS day,
    m.1 AS measure, m.2 AS bucket, 1 AS n, m.3 AS total, m.3 * m.3 AS squares
FROM trajectories FINAL
ARRAY JOIN arrayFilter(one -> abs(one.3) <= {LIMIT}, arrayConcat(
    [
        ('success', toInt16(0), toFloat64(success)),
        ('error', toInt16(0), toFloat64(error != '')),
        ('cut_off', toInt16(0), toFloat64(truncated)),
        ('steps', {_ch_bits("n_steps")}, toFloat64(n_steps)),
        ('milliseconds', {_ch_bits("duration_ms")}, duration_ms),
        ('tokens', {_ch_bits("tokens")}, toFloat64(tokens)),
        ('micros', toInt16(0), toFloat64(cost_micros))
    ],
    if(isNull(reward), [], [('reward', {_ch_tenths("assumeNotNull(reward)")}, assumeNotNull(reward))]),
    arrayMap((name, value) -> (concat('{COMPONENT}', name), {_ch_tenths("value")}, value),
        mapKeys(components), mapValues(components))
)) AS m
"""  # noqa: S608  (our own words)

# A training, here or elsewhere, as one row: ``warehouse_training``. PostgreSQL reads the row as it is: there are few.
# A job's budget is joined by the columns that are unique (its period is ``budgets.models.EVER``), so that what asks for
# no money does not read it.
PG_TRAININGS: Final = """
SELECT j.organization_id, j.id AS job_id, COALESCE(r.agent_id, q.agent_id) AS agent_id,
    CASE j.kind WHEN 'training' THEN 'here' ELSE 'elsewhere' END AS place, j.status,
    j.created_at, date_trunc('hour', j.created_at, 'UTC') AS hour, (j.created_at AT TIME ZONE 'UTC')::date AS day,
    j.worked_ms, COALESCE(r.trajectories, 0) AS trajectories,
    GREATEST(COALESCE(r.cost_micros, q.cost_micros, 0), COALESCE(b.spent, 0)) AS cost_micros
FROM jobs_job j
LEFT JOIN training_trainingrun r ON r.job_id = j.id
LEFT JOIN events_trainingrequest q ON q.job_id = j.id
LEFT JOIN budgets_budget b
    ON b.owner_id = j.id AND b.organization_id = j.organization_id AND b.period_start = DATE '1970-01-01'
WHERE j.kind IN ('training', 'external_training')
"""
