"""Traces of agents that run elsewhere, by OTLP over HTTP."""
