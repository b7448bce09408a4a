"""Remember how choices turned out, and learn from it which role, persona and model to choose next.

episodes    what is remembered: a situation, the action chosen in it, how it turned out, and the reward of that
memory      Memory: keeps that, updates what is known already, finds what is similar, answers questions
store       the database, which is the truth; index (vectors) and graph are made from it by processes that may die
policy      Policy: chooses an action by what similar episodes and the head expect of each, and learns from outcomes
retrieval   what similar episodes say about each action, in the two phases of MemRL
head        what linear models predict of each action, from the features of a situation (features)
calibration keeps predicted probabilities true
exploration draws actions with known probabilities, keeps dear ones within a budget
reward      what an outcome is worth, what a choice costs; credit shares the end of a run among its steps
evaluation  what another router would have earned, by logged choices

The package knows nothing of `orchestrator`, which hands it an embedder and the outcomes of its journal.
"""
