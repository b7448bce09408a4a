"""How long a decode step takes on this machine.

model        StepCostModel: measured points, interpolation, corrections; the best width of a batch
learned      what is learned of it from the steps that are done, and when it is no longer believed
cost_cache   what was measured, kept in a folder
calibration  measures steps and kinds of attention, one step at a time
idle         when that is done: in moments without other work
attention    which kind of attention takes less time
"""
