"""What a long step shows its model: it grows turn by turn, is pruned by id, and is condensed when it must be.

marks       how full the context is: free, past the soft mark, past the hard mark; pure
window      Window: the conversation so far, its documents by id; pure
cost        what it takes to make room by sweeping, condensing or asking, and what pays; pure
condensing  what a summary has to say, how it is asked for and read
editing     ContextEditor: counts, tells the budget, has the history condensed
talking     Conversation: asks the model for the next turn, and adds up what that takes
"""
