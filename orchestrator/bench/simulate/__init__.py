"""Simulate a machine: the real scheduler, journal and pool on a virtual clock, engines that answer by step costs."""
