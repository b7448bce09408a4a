"""Maintenance that is planned, shown, approved, done, audited and undone: procedures and the engine that runs them.

errors        the error tree
forms         a procedure's YAML file: its form, its JSON Schema, and what is checked when it is read
expressions   conditions and templates
library       finds the procedures that ship and those of the user
ports         what a procedure acts on, and who asks for it; handed in from above
resources     what a step changes: paths, rows, databases
checkpoints   copies what a step changes, and puts it back
rows          rows and databases of SQLite, copied and put back
changes       what the engine itself writes: files and registry entries, computed before they are written
plan          the steps in order with the exact changes, and the digest that an approval is for
audit         the append-only, hash-chained log of every action; executions are folds over it
execution     that fold: how far an execution is, what it has changed and what was undone
engine        plan, approve, execute, roll back, recover
steps         one attempt at a step: checkpoint, act, put back what a failed one has changed
locks         keep a second process from changing the same thing
dag           orders steps: topological order, waves, cycles; the analysis of tasks, in a package above, uses it too
"""
