"""What carries out a task: it plans it, schedules its steps, runs them, checks what they make, and keeps a record.

    planning      the Planner port, and frontdoor: requests in words become steps
    routing       the Router port: which role, persona and model an attempt has
    scheduler     the state machine of a run: handle(*events) -> commands
    loop          the main loop: events -> scheduler -> commands -> events; effects: what a command does
    orchestrator  Orchestrator: accepts jobs and runs them; Ports: what it is given
    steps         one attempt at a step, in the sandbox where it runs code; gates: the checks on what it made
    journal       events, artifacts and the state folder; record: what is told of a run, folded from its events

This file imports nothing, so that a part starts without the others.
"""
