"""Carry out a task: plan it, schedule and run its steps, check their outputs, and keep a record.

planning, frontdoor    requests in words become steps
routing                role, persona and model of an attempt
scheduler              the state machine of a run: handle(*events) -> commands
loop, effects          the main loop, and what each command does
orchestrator           accepts jobs and runs them
steps, gates, sandbox  one attempt at a step, and the checks of its outputs
journal, record        events and artifacts, and the reports that are folded from events
"""
# Imports nothing, so that a part starts without the others.
