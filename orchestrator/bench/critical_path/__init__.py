"""Measure how long tasks take from their acceptance to their end, and where the time of their critical paths goes.

The product's own orchestrator runs them, with its scheduler, journal, pool, engines and gates.
"""
