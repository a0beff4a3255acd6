"""Where vLLM 0.26 to 0.32 differ. Everything else in this room is written against what they have in common."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any


def set_weight_version(engine: Any, version: int) -> None:
    """Label the engine's outputs with a weight version; 0.26 has no such label."""
    if hasattr(engine, "set_weight_version"):
        engine.set_weight_version(str(version))


def keep_embeddings_tied(model_config: Any) -> None:
    """Tied stays tied although the folder also stores an ``lm_head``, which newer versions compare after loading."""
    if getattr(model_config, "word_embeddings_untied_by_checkpoint", False):
        model_config.word_embeddings_untied_by_checkpoint = False


def keep_process_groups(engine: Any) -> None:
    """Leave the shutdown to :func:`shut_down`: newer versions do their own when the engine is collected."""
    finalizer = getattr(engine.engine_core, "_finalizer", None)
    if finalizer is not None:
        finalizer.detach()


def shut_down(engine: Any) -> None:
    """Free an engine's resources, and nothing else.

    vLLM's own shutdown of an in-process core also destroys torch's process groups, which are the trainer's as well.
    """
    core = engine.engine_core.engine_core
    core.model_executor.shutdown()
    core.scheduler.shutdown()
    gc.unfreeze()  # the core froze every object that it found at its start


def watch_schedule(engine: Any, note: Callable[[int], None]) -> None:
    """Call ``note`` with the tokens of every engine step; LLMEngine.step keeps its scheduler's decision to itself."""
    scheduler = engine.engine_core.engine_core.scheduler
    schedule = scheduler.schedule

    def noted(*args: Any, **kwargs: Any) -> Any:
        decision = schedule(*args, **kwargs)
        note(decision.total_num_scheduled_tokens)
        return decision

    scheduler.schedule = noted
