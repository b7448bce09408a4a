"""Measure models, critical paths and simulated machines with the product's own engine, gates and scheduler.

critical_path  how long tasks take, and which steps that is due to
families       tasks that are made at random, whose answers can be checked
paired         compares two series of rounds
real           how well a model plans and does small tasks
simulate       a machine that is not there: real scheduler, journal and pool on a virtual clock
"""
