"""The events and log lines of a node. A lasting problem is logged once."""
