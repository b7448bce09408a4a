"""What a long step shows its model: it grows turn by turn, is pruned by id, and is condensed when it must be.

window        Window: the conversation so far, its documents by id; pure
budget        ContextBudget: how full the context is; what each way to make room costs, and what pays; pure
summary       what a summary has to say, how it is asked for and read
editor        ContextEditor: counts tokens, shows the model its budget, has the history condensed
conversation  Conversation: asks the model for the next turn, and adds up the usage
"""
