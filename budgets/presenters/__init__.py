"""Texts of the pages of budgets: sentences, names, curves."""
