"""How one step is carried out.

    prompt      how its prompt is laid out
    inputs      RunInputs: what it reads, found and read; files beneath --dir in files
    attempt     Attempt, ResolvedRole, Models: what one try is given; StepRunner carries it out and returns Produced
    generate    GenerateRunner: one try, from prompt to checked artifacts
    checking    what was made, through the gates; the judge role for them in judging
    answer      what its answer has to look like, and the artifacts taken out of it
    foreach     lists taken apart for the children of a `foreach` step, and joined again
    blame       what engines and the pool raise, as failures
    tools       what steps may use beside their model, and the steps that use it
    repl        steps whose model writes code, turn by turn, in an interpreter in the sandbox
    context     what a long step shows its model: pruned, condensed, within its budget
    outcome     what a step that acts came to, as artifacts
    bounds      how long an attempt may take, and what leaves it
    usage       what the generations of an attempt took together
    errors      AttemptError

This file imports nothing, because the trainer of the embedded models lays out prompts with `prompt` in an environment
that has none of the other modules' dependencies. Import from the modules.
"""
