"""The metered model client: no call is sent before its worst case is held. Pure, no Django
(docs/algorithms.md#prices-and-holds)."""
