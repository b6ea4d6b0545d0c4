"""The warehouse's tables, version by version: a version is never changed, a later one is added."""

from __future__ import annotations

from typing import Final

from evaluation.warehouse.clickhouse.client import ClickHouseStore
from evaluation.warehouse.measures import CH_VIEW

# A row is the last one of its key (organisation, hour, id): what is sent again replaces itself. A deleted one is a row
# that says so, so that a late copy of what it was can't bring it back.
TRAJECTORIES: Final = """
CREATE TABLE trajectories (
    organization_id UUID,
    hour DateTime('UTC'),
    id UUID,
    version UInt64,
    is_deleted UInt8 DEFAULT 0,
    agent_id UUID,
    job_id UUID,
    purpose LowCardinality(String),
    arm LowCardinality(String),
    line LowCardinality(String),
    iteration Int64,
    scenario Int64,
    rollout Int64,
    query String CODEC(ZSTD(3)),
    success Bool,
    outcome Float64,
    reward Nullable(Float64),
    n_steps Int32,
    truncated Bool,
    error String CODEC(ZSTD(3)),
    tokens Int64,
    cost_micros Int64,
    duration_ms Float64,
    policy_version LowCardinality(String),
    model LowCardinality(String),
    components Map(LowCardinality(String), Float64),
    steps String CODEC(ZSTD(3)),
    created_at DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY toYYYYMM(hour) ORDER BY (organization_id, hour, id)
"""
TRAININGS: Final = """
CREATE TABLE trainings (
    organization_id UUID,
    job_id UUID,
    version UInt64,
    is_deleted UInt8 DEFAULT 0,
    agent_id Nullable(UUID),
    place LowCardinality(String),
    status LowCardinality(String),
    hour DateTime('UTC'),
    day Date,
    worked_ms Int64,
    trajectories Int64,
    cost_micros Int64
) ENGINE = ReplacingMergeTree(version, is_deleted) ORDER BY (organization_id, job_id)
"""
VERSIONS: Final[tuple[tuple[str, ...], ...]] = (
    (TRAJECTORIES, TRAININGS, "CREATE VIEW warehouse_training AS SELECT * FROM trainings FINAL", CH_VIEW),
)


def schema_apply(store: ClickHouseStore) -> int:
    """Makes the database and what its tables lack. Returns how many versions were applied.

    Raises:
        WarehouseUnavailable, WarehouseRefused.
    """
    store.command(f"CREATE DATABASE IF NOT EXISTS {store.transport.database}", database="default")
    store.command("CREATE TABLE IF NOT EXISTS warehouse_schema (version UInt32) ENGINE = MergeTree ORDER BY version")
    [found] = store.execute("SELECT max(version) AS latest FROM warehouse_schema")
    later = VERSIONS[int(found["latest"]) :]
    for number, statements in enumerate(later, int(found["latest"]) + 1):
        for statement in statements:
            store.command(statement)
        store.command("INSERT INTO warehouse_schema SELECT {version:UInt32}", {"version": number})
    return len(later)
