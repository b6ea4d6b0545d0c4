from django.apps import AppConfig


class ExperiencesConfig(AppConfig):
    name = "experiences"
