"""A provider's own usage export, read and compared with the ledger."""
