"""Texts and figures of the pages of evaluations."""
