"""How long a decode step takes on this machine: predicted, measured and learned.

model            StepCostModel: measured times, interpolation, corrections; how many sequences to decode in a step
learned          LearnedStepCosts: corrects cost models by the steps that are done, and notices when one is wrong
cost_cache       keeps what was measured in a folder
step_timer       times single steps of a loaded model
calibration      measures step costs, one step at a time
attention        which kind of attention an engine may use
attention_trial  measures which kind takes less time
idle             does calibrations and trials in moments without other work
"""
