"""Runs with gates and fan-outs on a real model, while engines, the daemon and the disk are harmed and runs cancelled.

    workload   the registry, and the kinds of run
    daemon     the daemon, which is killed and started again
    faults     what is done to it, in an order that a seed repeats
    audit      what must hold of the journal and the machine afterwards

`python -m benchmarks.chaos`, or `make chaos`.
"""
