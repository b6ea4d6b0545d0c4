"""Makes rows of received messages, each in a transaction of its own."""
