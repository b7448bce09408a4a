"""Which tokens lie in which cells of the KV cache.

prefix_tree   which sequence holds which tokens, as a radix tree
prefix_store  KV cells of prompt beginnings in a folder
slots         who may enter a common pool of cells, and which prefix it starts from
streams       the same where every sequence has cells of its own
layout        which of the two takes less time for what is being read
"""
