"""History, which a store may keep: what people did, and what was counted."""
