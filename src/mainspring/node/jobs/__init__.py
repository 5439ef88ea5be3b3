"""The verbs about jobs, for apps and schedulers alike: `lookup` looks, `book` adds, changes and fires."""
