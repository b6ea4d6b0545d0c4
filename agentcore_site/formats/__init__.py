"""Formats of values for templates and the admin, if these name none."""
