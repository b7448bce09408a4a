"""Draft tokens, which the target model then verifies.

speculator     chooses the draft tokens of each step, from prompt lookup or a draft model
prompt_lookup  drafts what followed where the last tokens occurred in the sequence before
draft_model    drafts with a smaller model
controller     decides how many draft tokens are worth it, and whether drafting pays at all
"""
