from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "budgets"

    def ready(self) -> None:
        from budgets import erasure, retention, sealing  # noqa: F401  (where personal data may be, what is kept and sealed)
