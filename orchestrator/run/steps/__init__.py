"""How one step is carried out.

    prompt      how prompts are laid out
    role        ResolvedRole: a role with all that a request to its model needs
    inputs      RunInputs: finds and reads what steps read; files reads the user's folder
    seen        SeenFiles: which versions of the user's files an attempt has seen
    attempt     Attempt, Models: what one attempt is given; StepRunner carries it out and returns Produced
    generate    GenerateRunner: an attempt of a step that generates, from prompt to checked artifacts
    gating      sends outputs through the gates, with the judge role for the gates that ask a model
    answer      what an answer has to look like, and the artifacts taken out of an answer or a result
    foreach     takes lists apart for the children of a `foreach` step, and joins what they made
    tools       the tools of steps, and the steps that use them
    repl        steps whose model writes code, turn by turn, for an interpreter in the sandbox
    context     the context of long steps: pruned and condensed to stay within its budget
    errors      AttemptError, the mapping of engine and pool errors to failures, the time limit of an attempt

This file imports nothing, because the trainer of the embedded models lays out prompts with `prompt` in an environment
that has none of the other modules' dependencies. Import from the modules.
"""
