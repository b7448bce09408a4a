"""How one step is carried out.

    prompt      how its prompt is laid out
    inputs      RunInputs: what it reads, found and read; files beneath --dir in files
    generate    Attempt, Models, run_attempt: one try, from prompt to checked artifacts
    answer      what its answer has to look like, and the artifacts taken out of it
    fan         lists taken apart for the children of a `foreach` step, and joined again
    blame       what engines and the pool raise, as failures
    errors      AttemptError

This file imports nothing, because the trainer of the embedded models lays out prompts with `prompt` in an environment
that has none of the other modules' dependencies. Import from the modules.
"""
