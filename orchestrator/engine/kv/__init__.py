"""Which tokens are in which cells of the KV cache.

prefix_tree   which sequence holds which tokens, as a radix tree
prefix_store  KV cells of prompts on disk
prefix_value  which of these are worth their place; pure
slots         admission to a pool of cells that all share
states        the same for models with recurrent layers, whose sequences are forked at their ends only
streams       the same with a stream of cells for each sequence
layout        choice between pool and streams
prompt_history  how much of a prompt the cache is expected to hold, by the prompts before
"""
