"""Texts of the pages of training."""
