"""The verbs that only look: what happened and why, what is wrong, what schedules will do."""
