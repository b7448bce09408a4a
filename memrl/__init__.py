"""Remember how choices turned out, and learn from it which role, persona and model to choose next.

episodes    what is remembered: a situation, the action chosen in it, how it turned out, and the reward of that

The package knows nothing of `orchestrator`, which hands it an embedder and the outcomes of its journal.
"""
