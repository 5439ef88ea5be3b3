"""The JSON API: one table of endpoints, the answers, and the OpenAPI document generated from the table."""
