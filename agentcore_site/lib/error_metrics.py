"""The Prometheus counter of errors. Dashboards and alerts rely on its name and labels."""

from prometheus_client import Counter

errors = Counter("training_errors_total", "Errors by type and component.", ["error_type", "component"])
