"""Console pages of evaluation."""

from django.urls import path

from evaluation import views

app_name = "evaluation"
urlpatterns = [
    path("evaluations/", views.evaluations, name="evaluations"),
    path("evaluations/start/", views.start, name="start"),
    path("evaluations/<uuid:job_id>/", views.report, name="report"),
    path("evaluations/<uuid:job_id>/json/", views.report_json, name="report_json"),
    path("evaluations/<uuid:job_id>/cancel/", views.cancel, name="cancel"),
    path("evaluations/<uuid:job_id>/resume/", views.resume, name="resume"),
    path("jobs/<uuid:job_id>/evaluations/", views.of_run, name="of_run"),
]
