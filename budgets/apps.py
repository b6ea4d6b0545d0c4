from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "budgets"

    def ready(self) -> None:
        from budgets import erasure, retention  # noqa: F401  (say where personal data may stand, and what is kept)
