"""Rollplex: RL post-training of vision-language models with prefixes computed once and work hidden under decoding."""
