"""The Celery application. A message only wakes a worker up: the job's row is the truth
(docs/decisions/0002-the-row-is-the-truth.md)."""

import os
from typing import Any

from celery import Celery, Task
from celery.signals import beat_init, celeryd_init

from agentcore_site.lib.row_scope import everything
from agentcore_site.lib.steady_broker import SteadyBroker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")
# Django's checks load every page and form, 9 MB in each worker. The web process and CI make them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")


class ScopedTask(Task):
    """A task works across organisations, except a job's turn, which narrows its own scope."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with everything():
            return super().__call__(*args, **kwargs)


app = Celery("agentcore", task_cls=ScopedTask, amqp=SteadyBroker)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["consumer"].add("agentcore_site.jobs.worker_heartbeat:WorkerHeartbeat")


@celeryd_init.connect
@beat_init.connect
def stop_with_another_secret_key(**_: Any) -> None:
    """Ends a worker or beat whose SECRET_KEY differs from the database's, with the reason."""
    import django

    django.setup()
    from agentcore_site.secret_key import require_same_or_exit

    require_same_or_exit()
