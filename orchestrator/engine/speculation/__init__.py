"""Speculative decoding: draft tokens that the target model verifies.

speculator     chooses the draft tokens of each step, from prompt lookup or a draft model
prompt_lookup  drafts the tokens that followed an earlier occurrence of the last n-gram
draft_model    drafts with a smaller model
controller     decides how many draft tokens pay off, and whether to draft at all
"""
