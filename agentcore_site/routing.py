"""Websocket addresses."""

from django.urls import path

from agentcore_site.jobs.consumers import JobConsumer

websocket_urlpatterns = [
    path("ws/jobs/<str:job_id>/", JobConsumer.as_asgi()),
    path("ws/shared/<str:token>/", JobConsumer.as_asgi()),
]
