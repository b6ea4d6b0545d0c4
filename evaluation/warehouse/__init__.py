"""The warehouse: what agents lived, as figures by the hour and as rows in ClickHouse, and the dashboards over both."""
