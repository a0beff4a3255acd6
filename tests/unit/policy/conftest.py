"""Packs name Megatron-Core's attention; its imports need a prepared process."""

from rollplex.environment import prepare

prepare()
