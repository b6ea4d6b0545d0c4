from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"

    def ready(self) -> None:
        from training import erasure, job_kind, retention  # noqa: F401  (registers the kind; says where personal data may be)
