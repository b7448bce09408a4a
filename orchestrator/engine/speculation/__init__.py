"""Draft tokens, verified by the model that they are meant for.

speculator     draft tokens for the sequences of a step, from a lookup or a draft model
prompt_lookup  drafts what followed when the last tokens stood in the sequence before
draft_model    drafts with a smaller model
controller     how many draft tokens are worth it, and whether drafting pays at all
"""
