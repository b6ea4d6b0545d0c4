"""Django's backend for PostgreSQL, which says what it committed and does not wait for a server that fell silent."""
