"""One copy of the actor: how trainer, Hugging Face folder and rollout engine see the same bytes."""
