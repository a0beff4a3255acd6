"""Rollout: vLLM in this process, stepped by the decode lane, or saved rollouts fed back.

:class:`~rollplex.rollout.protocol.Rollout` is what both offer. Nothing here imports vLLM until an engine is built.
"""
