"""Speculative decoding: draft tokens that the target model verifies.

speculator     chooses the draft tokens of each step
drafter        Drafter: the contract of a drafting method
prompt_lookup  drafts the tokens that followed an earlier occurrence of the last n-gram
heads          drafts with the model's own MTP head, or with an EAGLE-3 head
draft_model    drafts with a smaller model
controller     decides how many draft tokens pay off, and whether to draft at all

`registry.options.DRAFTING` lists the methods, in the order in which they are asked.
"""
