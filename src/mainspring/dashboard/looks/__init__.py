"""How things look: shapes, charts, times and values. Pure functions from values to markup."""
