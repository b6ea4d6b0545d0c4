from django.apps import AppConfig


class EventsConfig(AppConfig):
    name = "evaluation.events"

    def ready(self) -> None:
        from evaluation.events import erasure, job_kind, retention  # noqa: F401  (register places of personal data, and the kind)
