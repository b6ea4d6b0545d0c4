"""Helpers of all pages of the console."""
