"""Which tokens are in which cells of the KV cache.

prefix_tree   records which sequence holds which tokens, as a radix tree
prefix_store  keeps the KV cells of prefixes in a folder
slots         admits sequences to a pool of cells that all share, and evicts finished prompts
streams       does the same where every sequence has cells of its own
layout        chooses between the two by which would have taken less time
"""
