"""Measure whole tasks on our orchestrator and on what a user would take instead, in one session and in paired rounds.

All get the same model file, prompts, numbers of answer tokens and threads; what differs is who decides what runs when.
"""
