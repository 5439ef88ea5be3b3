"""The JSON API: one table of endpoints, the answers, and the OpenAPI document made from the table."""
