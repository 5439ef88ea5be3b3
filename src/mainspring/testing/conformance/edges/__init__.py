"""The rules for runs that come after others."""
