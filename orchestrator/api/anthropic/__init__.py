"""The part of Anthropic's API that its clients need, so that they work unchanged.

messages  /v1/messages and /v1/messages/count_tokens
requests  request bodies: messages in blocks, tools, options
threads   stored conversations, so that a request sends only new messages
answers   response bodies and stream events
"""
