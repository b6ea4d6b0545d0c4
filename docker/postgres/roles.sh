#!/usr/bin/env bash
# The two roles of the database (docs/operations.md, "Roles of the database"), by the addresses in the secrets.
set -euo pipefail
password() { sed -E 's#^[^:]+://[^:]+:([^@]+)@.*#\1#' "/run/secrets/$1"; }
psql --username postgres --set ON_ERROR_STOP=1 --set owner="$(password database_owner_url)" --set application="$(password database_url)" <<'SQL'
CREATE ROLE agentcore LOGIN PASSWORD :'owner';
CREATE ROLE agentcore_app LOGIN PASSWORD :'application';
CREATE DATABASE agentcore OWNER agentcore;
ALTER ROLE agentcore_app IN DATABASE agentcore SET idle_in_transaction_session_timeout = '30s';
SQL
