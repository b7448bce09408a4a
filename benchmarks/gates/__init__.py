"""Measure what gates and escalation bring and cost, on tasks of the families of the embedded models.

tasks       the tasks, each identified by its family and number, and the check of an answer
setups      the registries to compare: weak models first, with and without escalation to stronger ones
measure     runs the tasks in one setup, sums up the results, and computes how long an attempt at code may take
rows        the log of results, so that a later run continues
recoveries  the retries and escalations that happened
showcase    one run whose report shows each kind of recovery
guardrail   how fast an engine decodes while gates run
"""
