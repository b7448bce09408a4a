"""Maintenance that is planned, shown, approved, done, audited and undone: procedures and their engine.

errors        the error tree
forms         a procedure's YAML file: its form, its JSON Schema and its checks
expressions   conditions and templates
library       finds the procedures that ship and those of the user, and those that a request may mean by its words
match         finds the one that it means, and its inputs
planner       ProcedurePlanner: answers requests to maintain the installation
choice        which procedure a request asks for: matched, or chosen by a model
ports         what a procedure acts on; passed in by installation
resources     what a step changes: paths, rows, databases
checkpoints   copies what a step changes, and puts it back
rows          copies rows and databases of SQLite, and puts them back
durable       writes and shares files durably
changes       files and registry entries that the engine itself writes, computed before they are written
plan          the steps in order with the exact changes, and the digest that an approval is for
audit         the append-only, hash-chained log; executions are folds over it
execution     that fold: how far an execution is, what it has changed and what was undone
engine        plan, approve, execute, roll back, recover
run           carries out one execution, and undoes it
secret        resolves and masks secret inputs
retention     finds old plans and sealed parts of the log
locks         keeps a second process from changing the same folders
tuning        searches the fastest settings
operations    what steps can call; upkeep says what they act on
installation  the engine of an installation, and what it says as JSON
queue         executes procedures in turn and by schedule, and tells watchers
service_queue the queue of a service, and what its operations act on
attachment    what a service has of all this: the planner, and the queue when it is needed
endpoints     the API of procedures
commands      the commands of procedures, by requests to the API (client)
"""
