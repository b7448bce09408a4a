"""What a task is: its document, its steps and who waits for whom, what can happen to it, and how long it takes."""
