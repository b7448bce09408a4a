"""How long a decode step takes on this machine: predicted, measured and learned.

model            StepCostModel: interpolates measured times; chooses how many sequences to decode in a step
learned          LearnedStepCosts: corrects cost models by observed steps, and detects wrong ones
cost_cache       stores measurements in a folder
step_timer       times single steps of a loaded model
calibration      measures step costs, one step at a time
attention        which kind of attention an engine may use
attention_trial  measures which kind is faster
idle             runs calibrations and trials while the engine has no work
"""
