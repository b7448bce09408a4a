"""Programs for the sandbox. They are sent there as text, so they import nothing of ours."""
