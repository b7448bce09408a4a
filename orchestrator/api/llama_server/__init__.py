"""The endpoints that llama.cpp's server has beside those of OpenAI's API, so that its clients work unchanged.

tokens      /tokenize, /detokenize, /apply-template
completion  /completion and /infill, as editors ask for them
state       /props and /slots
"""
