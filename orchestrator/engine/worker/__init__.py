"""What runs in the engine's process.

process          its main function
link             messages from and to the caller
loop             the loop of a model that generates text: take commands; schedule; decode; sample; emit
embedding        the loop of a model that embeds: take texts; fill a batch; compute; answer
sequence         one generation, from the queue to its end
sequences        all of them: queued, in prefill, decoding; admission to the KV cache and preemption
priority         in which order requests go, and which sequence is preempted; pure functions
batching         what goes into one call of llama_decode; pure functions
chat             messages to the tokens of a prompt, through the model's own template
raw_prompts      prompts that are no chats to tokens; tokens to text
sampling         logits to a token
logprobs         how likely the tokens of an answer were
text             bytes of tokens to text: whole characters, stop strings
stored_prefixes  KV cells of system prompts, kept on disk from one engine to the next
threads          how many threads compute beside other processes; a pure state machine
contention       whether other processes had the cores during a step
"""
