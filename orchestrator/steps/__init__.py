"""How one step is carried out.

    prompt      how its prompt is laid out
    inputs      RunInputs: what it reads, found and read; files beneath --dir in files
    attempt     Attempt, ResolvedRole, Models: what one try is given; StepRunner carries it out and returns Produced
    generate    GenerateRunner: one try, from prompt to checked artifacts
    checking    what was made, through the gates, with the judge role for them
    answer      what its answer has to look like, and the artifacts taken out of it
    foreach     lists taken apart for the children of a `foreach` step, and joined again
    tools       what steps may use beside their model, and the steps that use it
    repl        steps whose model writes code, turn by turn, in an interpreter in the sandbox
    context     what a long step shows its model: pruned, condensed, within its budget
    outcome     what a step that acts came to, as artifacts
    errors      AttemptError; what engines and the pool raise, as failures; how long an attempt may take

This file imports nothing, because the trainer of the embedded models lays out prompts with `prompt` in an environment
that has none of the other modules' dependencies. Import from the modules.
"""
