"""Tests of Django's admin. Its pages are loaded with the addresses; some ask which there are before that."""

from django.contrib import admin

admin.autodiscover()
