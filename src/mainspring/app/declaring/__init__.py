"""The signature of a task, as an app reads it: the parameters that workers provide, and the types of the others."""
