"""The look of the pages: shapes, charts, times and values. Pure functions from values to markup."""
