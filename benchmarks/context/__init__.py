"""Measure what it costs a step to gather from many documents, with and without a context that edits itself."""
