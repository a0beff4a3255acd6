"""vLLM's LLMEngine in this process, stepped by its caller, on the trainer's own weights.

Sampling is the trainer's policy softmax(logits / T) and nothing else: ``logprobs_mode="processed_logprobs"``,
``generation_config="vllm"`` (the folder's penalties and stop ids are not read), ``ignore_eos`` with the job's stop ids
spelled out, one request per sample with a seed of its own.

One thread at a time may use an engine; other threads may compute meanwhile, as long as they leave the weights alone
between :meth:`RolloutEngine.publish` and :meth:`RolloutEngine.retire`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from rollplex.batch import Prompt, Response
from rollplex.environment import prepare
from rollplex.rollout.pending import Pending
from rollplex.rollout.protocol import RetiredError, Sampling
from rollplex.rollout.seeds import request_id, sample_seed
from rollplex.rollout.stall import StallWatch
from rollplex.weights.share import RolloutWeights


class RolloutEngine:
    """Samples groups of responses.

    Args:
        folder: Hugging Face folder; config.json, tokenizer and processor are read, weights are not.
        weights: the trainer's, from :func:`rollplex.weights.share.share_weights`; kept alive by the engine.
        dtype: of the weights.
        max_model_len: most tokens of a prompt and its response.
        max_num_seqs: most samples decoded at once; more wait in the engine's queue.
        kv_cache_bytes: size of the KV cache; at least one longest sequence is made room for.
        seed: the job's seed, from which every sample's seed follows.
        stall_seconds: raise StallError when a sample gets no token for so long.
        clock: of the stall watch.

    The engine starts without a published version: call :meth:`publish` before the first :meth:`submit`.
    """

    def __init__(
        self,
        folder: str | Path,
        weights: RolloutWeights,
        *,
        dtype: torch.dtype = torch.float32,
        max_model_len: int,
        max_num_seqs: int = 64,
        kv_cache_bytes: int = 1 << 30,
        seed: int = 0,
        stall_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        prepare()
        from rollplex.rollout.build import build_engine
        from rollplex.rollout.compat import watch_schedule

        self._scheduled = 0  # tokens of the last step, prompt and response together
        self._engine: Any = build_engine(
            folder,
            weights,
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            kv_cache_bytes=kv_cache_bytes,
            seed=seed,
        )
        watch_schedule(self._engine, self._note_schedule)
        self._tokenizer = self._engine.get_tokenizer()
        self._weights = weights
        self._seed = seed
        self._max_model_len = max_model_len
        self._merge = int(self._engine.model_config.hf_config.vision_config.spatial_merge_size)
        self._pending: dict[str, Pending] = {}
        self._watch = StallWatch(stall_seconds, clock)
        self._published = False
        self.version = 0
        self.decode_batch = 0
        self.decode_tokens = 0
        self.prefill_tokens = 0

    @property
    def unfinished(self) -> int:
        """Samples that have been submitted and not returned."""
        return len(self._pending)

    @property
    def stalled(self) -> int:
        """Samples that have waited for a token for more than half of ``stall_seconds``."""
        return self._watch.stalled

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        """Queue ``group_size`` samples of every prompt, prompt by prompt.

        Raises:
            RetiredError: no weight version is published.
            ValueError: a prompt and its longest response do not fit ``max_model_len``, or a greedy group.
        """
        from rollplex.rollout.build import sampling_params
        from rollplex.rollout.inputs import engine_input

        self._refuse_retired("submit")
        sampling.refuse_greedy_group(group_size)
        for index, prompt in enumerate(prompts):
            longest = max(sampling.limit(index, sample) for sample in range(group_size))
            if len(prompt.token_ids) + longest > self._max_model_len:
                raise ValueError(
                    f"prompt {prompt.id!r} has {len(prompt.token_ids)} tokens; with rollout.maxTokens {longest} that "
                    f"is more than the engine's max_model_len {self._max_model_len}"
                )
        for index, prompt in enumerate(prompts):
            inputs = engine_input(prompt, self._merge)
            for sample in range(group_size):
                name = request_id(step, index, sample)
                if name in self._pending:
                    raise ValueError(f"rollout sample {name} is unfinished already: a step can be submitted once")
                seed = sample_seed(self._seed, step, prompt.id, sample)
                params = sampling_params(sampling, sampling.limit(index, sample), seed)
                self._engine.add_request(name, inputs, params)
                text = "" if params.detokenize else None
                self._pending[name] = Pending(
                    name, prompt, index, sample, params.max_tokens, may_stop=not sampling.exact, text=text
                )
                self._watch.add([name])

    def step(self) -> list[Response]:
        """One engine step; the samples that finished in it, in the order in which they were submitted.

        Raises:
            RetiredError: the weights are not a published version.
            SampleError: a sample has no usable log probability, or is not of the prompt that was sent.
            StallError: a sample has waited too long for its next token.
        """
        self._refuse_retired("step")
        self._watch.begin()
        self._scheduled = self.decode_batch = self.decode_tokens = 0
        outputs = self._engine.step()
        # a prompt's last token is read to sample the first response token, later ones are read one by one
        self.prefill_tokens = self._scheduled
        finished: list[Pending] = []
        progressed: list[str] = []
        for output in outputs:
            pending = self._pending.get(output.request_id)
            if pending is None:
                continue  # aborted in this step
            first = not pending.token_ids
            tokens = pending.extend(output)
            if tokens:
                self.prefill_tokens -= 0 if first else tokens
                self.decode_batch += 1
                self.decode_tokens += tokens
                progressed.append(pending.name)
            if output.finished:
                finished.append(pending)
        self._watch.drop(pending.name for pending in finished)
        for pending in finished:
            del self._pending[pending.name]
        self._watch.end(name for name in progressed if name in self._pending)
        return [pending.response(self._text) for pending in finished]

    def abort_all(self) -> None:
        """Drop every unfinished sample and what the engine holds for it."""
        names = list(self._pending)
        self._engine.abort_request(names)
        self._watch.drop(names)
        self._pending.clear()

    def retire(self) -> None:
        """The trainer is about to write weights: nothing may be sampled until :meth:`publish`.

        Raises:
            RuntimeError: samples are unfinished; finish or abort them first.
        """
        self._refuse_unfinished("retire")
        self._published = False

    def publish(self) -> int:
        """Make the trainer's weights of this moment the next version.

        Re-lays-out the copies, makes sure that the aliases still alias, and drops what was computed with the old
        weights: prefix KV and vision features (with shared memory no load event would tell the engine).

        Raises:
            RuntimeError: samples are unfinished, or the prefix cache is in use.
            WeightLayoutError: a parameter has moved.
        """
        from rollplex.rollout.compat import set_weight_version

        self._refuse_unfinished("publish")
        self._published = False
        self._update_weights()
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM refused to reset its prefix cache: blocks are still in use")
        self._engine.reset_encoder_cache()
        self.version += 1
        set_weight_version(self._engine, self.version)
        self._published = True
        return self.version

    def positions(self, prompt: Prompt) -> torch.Tensor:
        """Position ids [3, P] that the engine gives a prompt, by the code and from the features that a request has."""
        from rollplex.rollout.build import sampling_params
        from rollplex.rollout.inputs import engine_input

        inputs, params = engine_input(prompt, self._merge), sampling_params(Sampling(), limit=1, seed=0)
        tasks = self._engine.get_supported_tasks()
        request = self._engine.input_processor.process_inputs("positions", inputs, params, tasks)
        rule = self._engine.apply_model(
            lambda model: model.get_mrope_input_positions(request.prompt_token_ids, request.mm_features or [])
        )
        positions: torch.Tensor = rule[0][0]
        return positions

    def close(self) -> None:
        """Shut the engine down and let go of the weights; a second call does nothing."""
        self._published = False
        if self._engine is None:
            return
        from rollplex.rollout.compat import shut_down

        shut_down(self._engine)
        self._engine = None
        gc.collect()

    def _update_weights(self) -> None:
        self._rpc("start_weight_update")
        self._rpc("update_weights", update_info={"version": self.version + 1})
        self._rpc("finish_weight_update")

    def _note_schedule(self, tokens: int) -> None:
        self._scheduled = tokens

    def _text(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _rpc(self, method: str, **arguments: Any) -> None:
        self._engine.collective_rpc(method, kwargs=arguments)

    def _refuse_retired(self, what: str) -> None:
        if not self._published:
            raise RetiredError(
                f"cannot {what}: weight version {self.version + 1} is not published; call publish() first"
            )

    def _refuse_unfinished(self, what: str) -> None:
        if self._pending:
            first = next(iter(self._pending))
            raise RuntimeError(
                f"cannot {what}: {len(self._pending)} samples are unfinished, first {first}; finish or abort them"
            )
