"""Payloads as ``docs/events`` describes them, from plain values and back. Pure."""
