"""Payloads in the form of ``docs/events``, from plain values and back. Pure."""
