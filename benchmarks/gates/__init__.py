"""What gates and escalation bring, and what they cost, on tasks of the embedded models' families.

tasks       the tasks, each known by its family and number, with the answer that is right
world       the registries: weak models first, with and without a ladder to stronger ones
measure     run tasks, and sum up what became of them
rows        what became of each task, kept so that a later run goes on
deadline    how long an attempt at code may take on this machine
stories     the retries and escalations that really happened
guardrail   how fast an engine decodes while gates run
"""
