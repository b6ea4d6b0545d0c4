"""Prometheus names of the job engine, as the source documents give them (SPEC O1)."""

from __future__ import annotations

from prometheus_client import Counter

created = Counter("training_jobs_created_total", "Jobs created.")
completed = Counter("training_jobs_completed_total", "Jobs that ended, by status.", ["status"])
errors = Counter("training_errors_total", "Errors by type and component.", ["error_type", "component"])
