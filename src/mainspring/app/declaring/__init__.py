"""The declarations in a user's code: tasks with their options and signatures, resources, schedules."""
