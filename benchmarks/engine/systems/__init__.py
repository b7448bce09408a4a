"""The systems that run the same loads: ours, its peers, and the ceiling.

Where our engine cannot use llama.cpp's extra buffer types, none of the systems does (`parameters`), so that none has
kernels that the others lack.
"""
