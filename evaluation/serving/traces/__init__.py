"""Requests and answers in production: in a journal at once, in the database a moment later."""
