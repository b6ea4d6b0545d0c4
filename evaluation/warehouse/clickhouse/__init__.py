"""ClickHouse: over HTTP, or in this process by chdb."""
