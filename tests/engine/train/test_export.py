"""vLLM itself, in a process without the trainer, answers from the exported folder as the trainer's policy does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoProcessor

from rollplex.batch import Prompt
from rollplex.policy.policy import Policy, load_policy
from tests.engine.policy.passes import SplitPass, group_of
from tests.engine.policy.test_export import prompt_of
from tests.engine.train.conftest import Run, command

TOKENS = 4
VIDEO = "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>Which colour?<|im_end|>\n<|im_start|>assistant\n"
TEXTS = ["Which colour is the moving shape?", "the red circle moves left"]
# The README's own lines, then what any user of vLLM writes.
WITH_VLLM = """
import json, sys

import numpy as np

folder, frames, texts, video, tokens = sys.argv[1], np.load(sys.argv[2]), *map(json.loads, sys.argv[3:6])
options = dict(dtype="float32", max_model_len=512, max_num_seqs=4, kv_cache_memory_bytes=16 << 20, block_size=32,
               enforce_eager=True, enable_chunked_prefill=False, generation_config="vllm", skip_mm_profiling=True)
{code}
about = {{"fps": 2.0, "duration": len(frames) / 2, "total_num_frames": len(frames), "video_backend": "opencv",
         "frames_indices": list(range(len(frames))), "do_sample_frames": False}}
prompts = [{{"prompt": text}} for text in texts]
prompts.append({{"prompt": video, "multi_modal_data": {{"video": [(frames, about)]}}}})
params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
out = llm.generate(prompts, params, use_tqdm=False)
print("TOKENS", json.dumps([[list(one.prompt_token_ids), list(one.outputs[0].token_ids)] for one in out]))
"""


@torch.no_grad()
def greedy(policy: Policy, prompt: Prompt) -> list[int]:
    """The likeliest token each time, by the trainer's own split pass over every token there is."""
    tokens: list[int] = []
    for _ in range(TOKENS):
        every = [[*tokens, token] for token in range(policy.shape.vocabulary)]
        scored = SplitPass(policy, [group_of(0, prompt, *every)]).scored
        tokens.append(max(range(len(every)), key=lambda token: float(scored[0, token][-1])))
    return tokens


def test_vllm_answers_from_the_exported_folder_as_the_policy_does(
    trained: Run, workplace: Path, tmp_path: Path
) -> None:
    done = command("export", "live", "--out", str(tmp_path / "out"), cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "step 3 of small, 1 weight file(s)" in done.stdout
    assert_vllm_answers_as_the_policy(tmp_path)


def assert_vllm_answers_as_the_policy(tmp_path: Path) -> None:
    """Of the folder ``out`` there, by the lines of its README: prompt ids of texts and a video, and greedy tokens."""
    frames = np.random.default_rng(1).integers(0, 255, (8, 84, 84, 3), dtype=np.uint8)
    np.save(tmp_path / "frames.npy", frames)
    code = re.findall(r"```python\n(.*?)```", (tmp_path / "out/README.md").read_text(), re.S)[1]
    assert code.count("LLM(folder)") == 1
    program = WITH_VLLM.format(code=code.replace("LLM(folder)", "LLM(folder, **options)"))
    arguments = [str(tmp_path / "out"), str(tmp_path / "frames.npy"), *map(json.dumps, (TEXTS, VIDEO, TOKENS))]
    said = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert said.returncode == 0, said.stderr[-3000:]
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("TOKENS ")]
    answers = json.loads(line.removeprefix("TOKENS "))

    policy = load_policy(tmp_path / "out")
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    prompts = []
    for text in TEXTS:
        ids = processor.tokenizer(text)["input_ids"]
        prompts.append(Prompt("text", tuple(ids), torch.arange(len(ids)).expand(3, -1)))
    about = [{"fps": 2.0, "total_num_frames": len(frames), "frames_indices": list(range(len(frames)))}]
    inputs = processor(text=[VIDEO], videos=[frames.transpose(0, 3, 1, 2)], video_metadata=about, return_tensors="pt")
    prompts.append(prompt_of(inputs, tmp_path / "out"))
    assert [ids for ids, _ in answers] == [list(prompt.token_ids) for prompt in prompts]
    assert [tokens for _, tokens in answers] == [greedy(policy, prompt) for prompt in prompts]
