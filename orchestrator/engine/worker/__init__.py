"""The engine's process.

adapters         LoRA adapters of a step
batching         tokens of a step; pure
call_grammars    grammars for tool calls
chat             messages to tokens
contention       load by other processes
embedding        the loop of a model that embeds
link             messages from and to the parent
logprobs         logprobs of tokens
loop             the loop of a model that generates
penalties        penalties for repetition
priority         order of requests; pure
process          main function
prompt_reports   progress of prompts
prompts          requests to tokens
raw_prompts      texts to tokens and back
repetition       text that repeats itself
sampling         logits to tokens
sequence         one generation
sequences        admission and preemption
spinning         how long threads wait before they sleep
stored_prefixes  prompts on disk
system_prompts   where prompts with a system prompt part
text             bytes to text, stop strings
thinking         thoughts before the answer
threads          number of threads; pure
"""
