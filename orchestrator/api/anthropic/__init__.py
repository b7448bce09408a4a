"""The part of Anthropic's API that its clients need, so that they work unchanged.

messages  /v1/messages and /v1/messages/count_tokens
requests  what their bodies hold: messages in blocks, tools, options
threads   conversations that are kept, so that requests send only what is new
answers   the bodies of answers, and the events of those that are streamed
"""
