"""The endpoints of llama.cpp's server that OpenAI's API does not have, so that its clients work unchanged.

tokens      /tokenize, /detokenize, /apply-template
completion  /completion and /infill, which plugins of editors use
state       /props and /slots
"""
