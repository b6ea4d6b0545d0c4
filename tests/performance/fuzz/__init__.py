"""Hostile requests at a site that runs as shipped: REST, JSON-RPC, pages, admin, sockets (``make bench ARGS=fuzz``)."""
