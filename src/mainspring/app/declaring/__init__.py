"""What an app reads from the signature of a task: the parameters that workers provide, and the types of the others."""
