"""What the code of a user declares: tasks with their options and signatures, resources, schedules."""
