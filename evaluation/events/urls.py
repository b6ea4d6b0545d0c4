"""Console pages of events."""

from django.urls import path

from evaluation.events import views

app_name = "events"
urlpatterns = [
    path("events/", views.publishers, name="publishers"),
    path("events/publishing/", views.publishing, name="publishing"),
    path("events/publishers/<uuid:credential_id>/revoke/", views.publisher_revoke, name="publisher_revoke"),
    path("events/trainings/", views.trainings, name="trainings"),
    path("events/trainings/<uuid:job_id>/", views.training, name="training"),
    path("events/trainings/<uuid:job_id>/cancel/", views.training_cancel, name="training_cancel"),
    path("events/dead-letters/", views.dead_letters, name="dead_letters"),
    *(
        path(
            f"events/dead-letters/<uuid:letter_id>/{action}/",
            views.dead_letter_act,
            {"action": action},
            name=f"dead_letter_{action}",
        )
        for action in views.LETTER_ACTS
    ),
]
