"""The Celery application. Messages are doorbells: the job's row is the truth (DESIGN, invariant 1)."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")
# Django's checks load every page and form, 9 MB in each worker. The web process and CI make them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

app = Celery("agentcore")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
