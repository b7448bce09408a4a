"""Train the frontdoor to split requests, by reinforcement learning in the production harness with frozen workers.

    requests ──▶ harness ──▶ reward ──▶ grpo ──▶ adapter (GGUF) ──▶ compare ──▶ promote
                 the real planner, scheduler, pool and gates on simulated machines;
                 plans and answers come from real engines

Method: the parallel-agent reinforcement learning of the Kimi K2.5 report, with GRPO (Shao et al., 2024) on LoRA
weights. `network`, `lora`, `weights`, `grpo` and `train` need the extra `train`; the command names it if it is missing.
"""
