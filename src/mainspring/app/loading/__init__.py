"""Find the code of an app: by its name, by the modules it includes, and guard what an import may do."""
