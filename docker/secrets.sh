#!/usr/bin/env bash
# Makes docker/secrets/ for docker/compose.yaml: a password for each service, and the addresses that hold them. What is
# there already stays. The files are readable by the containers' users, the folder by its owner alone.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets
word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
put() { [ -e "secrets/$1" ] || { printf '%s\n' "$2" >"secrets/$1" && chmod 644 "secrets/$1"; }; }

owner=$(word) application=$(word) store=$(word) bus=$(word) key=$(word)
if [ ! -e secrets/database_url ]; then # these four belong together
    put database_url "postgresql://agentcore_app:$application@pgbouncer:6432/agentcore"
    put database_probe_url "postgresql://agentcore_app:$application@pgbouncer:6432/agentcore_probe"
    put database_owner_url "postgresql://agentcore:$owner@postgres:5432/agentcore"
    put pgbouncer_users "\"agentcore_app\" \"$application\""
fi
if [ ! -e secrets/redis_url ]; then
    put redis_url "redis://:$store@valkey:6379/0"
    put valkey_conf "requirepass $store
appendonly yes
maxmemory-policy noeviction
dir /data"
fi
if [ ! -e secrets/nats_url ]; then
    put nats_url "nats://agentcore:$bus@nats:4222"
    put nats_conf "http: 8222
jetstream { store_dir: /data }
authorization { user: agentcore, password: \"$bus\" }"
fi
if [ ! -e secrets/s3_credentials ]; then
    put s3_credentials "[default]
aws_access_key_id = agentcore
aws_secret_access_key = $key"
    put s3_identities "{\"identities\": [{\"name\": \"agentcore\", \"actions\": [\"Admin\"],
  \"credentials\": [{\"accessKey\": \"agentcore\", \"secretKey\": \"$key\"}]}]}"
fi
for name in postgres_password secret_key metrics_token clickhouse_password grafana_password; do put "$name" "$(word)"; done
