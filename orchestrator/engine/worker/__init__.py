"""What runs in the engine's process.

process     its main function
link        the connection to the caller
outbox      collects what there is to say in a step
loop        take commands; choose this step's tokens; decode; sample; emit
embedding   the loop of a model that embeds: take texts; fill a batch; compute; answer
sequence    one generation on its way through the engine
sequences   who is queued, in prefill, decoding; into the cache and out of it
priority    who goes first, and who is preempted, as pure functions
batching    what goes into one llama_decode, as pure functions
chat        messages to segments of a prompt, through the model's own template
prompt      segments to tokens
sampling    logits to a token
text        bytes of tokens to text: whole characters, stop strings
warm        which prompt beginnings an engine starts with and leaves behind in a folder
threads     how many threads compute beside other processes, as a pure state machine
contention  whether other processes had the cores during a step
"""
