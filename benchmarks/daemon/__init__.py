"""What the daemon costs and what it bears: a real one, on the embedded models, in a process of its own.

served      the daemon, and talking to it
bodies      what it is asked to do
figures     goals, percentiles and slopes
chain       its own time per step, on a chain of width 1
control     how soon it answers while its engines are busy, beside a bare socket and fsync
queued      many runs wait, it is killed, and none is lost
clients     many clients at once
dag         one run of many steps
memory      many short runs, one after the other
pressure    more is asked than it takes on
fairness    a flood of batch runs beside interactive ones, and the other way round
report      the results, merged part by part
"""
