"""Alerts on budgets, jobs that money stopped, and the requests to raise a limit."""
