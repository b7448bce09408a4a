"""Measure what the daemon costs and how much load it takes: a real one in its own process, on the embedded models.

process     starts the daemon, and calls its API
bodies      the bodies of the requests
figures     percentiles and slopes
chain       its own time per step, on a chain of width 1
control     how soon it answers while its engines are busy, compared with a bare socket and fsync
queued      many runs are queued, the daemon is killed, and no run is lost
clients     many clients at once
dag         one run of many steps
memory      many short runs, one after the other
pressure    more runs are submitted than the queue takes
fairness    a flood of batch runs next to interactive ones, and the other way round
swap        conversations with two models that take turns in memory
hostile     small requests while others, servers and patterns are made to keep the daemon busy
report      the file of results, merged part by part
"""
