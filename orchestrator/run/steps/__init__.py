"""Carry out one step.

    role        a role with all that a request to its model needs; layout of prompts, also of retries
    inputs      what steps read; files: from the user's folder, and which versions of them were read
    attempt     Attempt, Models, Produced, StepRunner; AttemptError, failures, time limits
    means       what the runner of an attempt may act with
    generate    steps that generate
    gating      outputs through the gates
    answer      shape of an answer; artifacts from an answer or a result
    foreach     lists: split for the children, joined from their outputs
    tools       tools, and steps that use them
    repl        steps whose model writes code for an interpreter in the sandbox
    context     long steps: pruned and condensed

This file imports nothing: the trainer of the embedded models uses `role` without the dependencies of the others.
"""
