"""Meters of model calls: the port, meters on the ledger, prices in memory, limits of an endpoint."""
