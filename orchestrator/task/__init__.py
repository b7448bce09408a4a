"""Define a task: its document, its steps and their dependencies, its events, and its predicted duration."""
