"""Run the same load on each system: ours, its peers, and the ceiling.

All of them leave llama.cpp's extra buffer types alone where our engine has to (`parameters`), so that none has kernels
that the others lack.
"""
