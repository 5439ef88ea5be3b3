"""The verbs that only look: at what happened and why, at what is wrong, at what schedules will do."""
