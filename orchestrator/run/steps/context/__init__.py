"""The context of a long step: it grows turn by turn, is pruned by id, and is condensed when it has to be.

window        the conversation so far, its documents by id; pure
budget        how full the context is, what making room costs; pure
summary       the schema of a summary, and how it is read
editor        shows the budget, has the history condensed
conversation  asks the model for the next turn
"""
