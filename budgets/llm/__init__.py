"""The metered model client: no call is sent before its worst case is held (ALGORITHMS 7). Pure, no Django."""
