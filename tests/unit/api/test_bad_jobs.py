"""One table of bad jobs: each has exactly one fault, at a known path, with a message that helps."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex.api import JobError, job_from, load_job
from rollplex.api.document import with_overrides
from rollplex.api.load import Context

SMALLEST = {
    "apiVersion": "rollplex.io/v1alpha1",
    "kind": "RollplexJob",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"path": "/models/m"},
        "data": {"train": "/data/train.jsonl"},
        "reward": [{"name": "exact"}],
        "training": {"steps": 3},
    },
}
ON_CLUSTER = [
    "checkpoint.path=/checkpoints/small",
    "volumes=[{claim: m, path: /models, readOnly: true}, {claim: d, path: /data}, {claim: c, path: /checkpoints}]",
]

BAD_FIELDS = [
    ("training.steps=", "training.steps", "is missing; for example steps: 500"),
    ("model.path=", "model.path", "is missing; for example path: /models/"),
    ("training.steps=0", "training.steps", "0 is below the minimum 1"),
    ("training.steps='20'", "training.steps", '"20" is text; write it without quotes'),
    ("training.steps=1.5", "training.steps", "1.5 is not a whole number"),
    ("training.steps=true", "training.steps", "true is not a whole number"),
    ("training.stepz=3", "training.stepz", "unknown key; did you mean steps?"),
    ("training.prompts_per_step=3", "training.prompts_per_step", "did you mean promptsPerStep?"),
    ("promptsPerStep=3", "promptsPerStep", "did you mean spec.training.promptsPerStep?"),
    ("training.zebra=3", "training.zebra", "known here: promptsPerStep, steps, microBatchTokens, seed, maxSkipped"),
    ("training.zebra=", "training.zebra", "unknown key"),
    ("training=3", "training", "3 is not a mapping"),
    ("training.optimizer.learningRate=fast", "training.optimizer.learningRate", '"fast" is not a number'),
    ("training.optimizer.learningRate=.nan", "training.optimizer.learningRate", "nan is not a finite number"),
    ("training.optimizer.betas=[0.9]", "training.optimizer.betas", "the list has 1 of at least 2 items"),
    ("training.optimizer.betas=[0.9, 1]", "training.optimizer.betas.1", "1 is not below 1"),
    ("algorithm.groupSize=1", "algorithm.groupSize", "1 is below the minimum 2; an advantage is a reward against its"),
    ("algorithm.groupSize=9999", "algorithm.groupSize", "9999 is above the maximum 1024"),
    ("algorithm.name=ppo", "algorithm.name", '"ppo" is not one of grpo, dr_grpo, gspo, dapo, cispo, rloo, reinforce'),
    ("algorithm.name=dr-grpo", "algorithm.name", "did you mean dr_grpo?"),
    ("rollout.temperature=0", "rollout.temperature", "0 is below the minimum 0.01; vLLM raises colder ones to it"),
    ("rollout.topP=0.8", "rollout.topP", "refused for training: the engine would sample from another policy"),
    ("rollout.top_k=40", "rollout.top_k", "refused for training: the engine would sample from another policy"),
    ("rollout.minP=0.1", "rollout.minP", "leave it out"),
    ("rollout.logitBias={1: 2}", "rollout.logitBias", "refused for training"),
    ("rollout.lora={rank: 8}", "rollout.lora", "an adapter would change the policy"),
    ("rollout.quantization=fp8", "rollout.quantization", "quantised weights are another policy"),
    ("rollout.stop=[a, -1]", "rollout.stop.1", "-1 is neither a token id (0 or more) nor a text"),
    ("rollout.stop=a", "rollout.stop", '"a" is not a list'),
    ("rollout.maxTokens=0", "rollout.maxTokens", "0 is below the minimum 1"),
    ("rollout.stallSeconds=0", "rollout.stallSeconds", "0 is not above 0"),
    ("schedule.runAhead=0", "schedule.runAhead", "0 is neither auto nor a whole number from 1 to 65536"),
    ("schedule.decodeSMs=all", "schedule.decodeSMs", '"all" is neither auto nor a whole number from 1 to 1024'),
    ("schedule.sharePrefix=yes please", "schedule.sharePrefix", '"yes please" is not true or false'),
    ("memory.budget=76GB", "memory.budget", '"76GB" is malformed; write a number of bytes above 0 with Ki, Mi, Gi'),
    ("memory.budget=80", "memory.budget", "80 is not text; put it in quotes; write a number of bytes"),
    ("memory.budget=0Gi", "memory.budget", '"0Gi" is malformed'),
    ("reward=[]", "reward", "the list has 0 of at least 1 items"),
    ("reward.0.weight=heavy", "reward.0.weight", '"heavy" is not a number'),
    ("reward.0.python=rewards:f", "reward.0.python", '"rewards:f" is malformed; write FILE.py:FUNCTION'),
    ("model.freeze=[eyes]", "model.freeze.0", '"eyes" is not one of vision, projector, language'),
    ("model.path=''", "model.path", '"" is empty'),
    ("evaluation.samples=2", "evaluation.data", "is missing; for example data: /data/validation.jsonl"),
    ("podTemplate={1: 2}", "podTemplate.1", "the key 1 is not text"),
    ("volumes=[{claim: Data, path: /d}]", "volumes.0.claim", '"Data" is malformed; write lower-case letters'),
    ("volumes=[{claim: data, path: d}]", "volumes.0.path", '"d" is malformed; a mount path begins with /'),
]  # fmt: skip

BROKEN_RULES = [
    ("job", ["model.shape=gpt-2"], "model.shape", '"gpt-2" is not one of qwen2.5-vl-tiny, '),
    ("job", ["model.freeze=[vision, language, projector]"], "model.freeze", "nothing is left to train"),
    ("job", ["model.reference=/m", "algorithm.kl.coefficient=0"], "model.reference", "would not be loaded"),
    ("job", ["algorithm.name=opd"], "model.reference", "opd distils from a teacher"),
    ("job", ["algorithm={name: gspo, normalization: token}"], "algorithm.normalization",
     '"token" would make gspo another algorithm; use sequence, or leave it out'),
    ("job", ["algorithm={name: rloo, clip: {low: 0.1}}"], "algorithm.clip.low", "0.1 would not be read, since rloo"),
    ("job", ["algorithm={name: opd, kl: {coefficient: 0.1}}", "model.reference=/m"], "algorithm.kl.coefficient",
     "0.1 would not be read, since opd has none; leave it out"),
    ("job", ["algorithm.overlong.buffer=4"], "algorithm.overlong.buffer", "4 would not be read, since grpo has none"),
    ("job", ["algorithm={name: dapo, overlong: {buffer: 9}}", "rollout.maxTokens=8"], "algorithm.overlong.buffer",
     "9 is above rollout.maxTokens 8"),
    ("job", ["algorithm.name=dapo", "model.reference=/m"], "model.reference", "algorithm.kl.coefficient is 0"),
    ("job", ["data.columns.prompt=q", "data.format=verl"], "data.columns", "columns by hand and format verl"),
    ("job", ["reward.0.name="], "reward.0", "has neither of name and python"),
    ("job", ["reward.0.python=/r.py:f"], "reward.0", "has both of name and python"),
    ("job", ["reward=[{python: /r.py:f, options: {a: 1}}]"], "reward.0.options", "a function of yours holds"),
    ("job", ["reward.0.options.ignoreCase=true"], "reward.0.options", "would not be read, since exact has none"),
    ("job", ["reward=[{name: numeric, options: {relativ: 0.1}}]"], "reward.0.options.relativ", "mean relative?"),
    ("job", ["reward=[{name: numeric, options: {relative: '5%'}}]"], "reward.0.options.relative", "is not a number"),
    ("job", ["reward=[{name: numeric, options: {absolute: -1}}]"], "reward.0.options.absolute", "below the minimum 0"),
    ("job", ["reward=[{name: numeric, options: {percent: half}}]"], "reward.0.options.percent", "share, ignore"),
    ("job", ["reward=[{name: choice, options: {choices: 27}}]"], "reward.0.options.choices", "above the maximum 26"),
    ("job", ["reward.0.name=iou"], "reward.0.options.kind", "is missing; for example kind: box"),
    ("job", ["reward.0.name=format"], "reward.0.options.pattern", "is missing; for example pattern: <answer>.+"),
    ("job", ["reward=[{name: format, options: {pattern: '(a'}}]"], "reward.0.options.pattern",
     '"(a" is no regular expression: missing ), unterminated subpattern'),
    ("job", ["reward=[{name: length, options: {maxTokens: 4, bufferTokens: 5}}]"], "reward.0.options.bufferTokens",
     "5 is above maxTokens 4"),
    ("job", ["reward=[{name: length, options: {maxTokens: 640, bufferTokens: 128}}]"], "reward.0.options",
     "longer than maxTokens - bufferTokens = 512 tokens are punished, and rollout.maxTokens 512"),
    ("job", ["rollout.replay=/r", "evaluation.data=/v.jsonl"], "evaluation", "with rollout.replay nothing is sampled"),
    ("job", ["schedule.sharePrefix=false"], "schedule.sharePrefix", "mode is stream: use serial"),
    ("job", ["parallelism={train: {tensor: 4}, rollout: {tensor: 6}}"], "parallelism.rollout.tensor", "neither"),
    ("job", ["parallelism.placement=disaggregated"], "parallelism.rollout.ranks", "is missing; placement"),
    ("job", ["parallelism.rollout.ranks=2"], "parallelism.rollout.ranks", "2: with placement colocated"),
    ("job", ["envFrom=[{prefix: A}]"], "envFrom.0", "has neither of secretRef and configMapRef"),
    ("job", ["volumes=[{claim: a, path: /d}, {claim: b, path: /d}]"], "volumes.1.path", "/d is where claim a is"),
    ("ranks", ["parallelism.train.tensor=16"], "parallelism.train.tensor", "16 does not divide 8 ranks"),
    ("ranks", ["parallelism={placement: disaggregated, rollout: {ranks: 8}}"], "parallelism.rollout.ranks", "none"),
    ("ranks", ["parallelism={placement: disaggregated, rollout: {ranks: 2, tensor: 4}}", "training.promptsPerStep=6"],
     "parallelism.rollout.tensor", "4 does not divide 2 ranks"),
    ("ranks", ["training.promptsPerStep=12"], "training.promptsPerStep",
     "12 is not divisible by the data-parallel size 8 (8 ranks / parallelism.train.tensor 1)"),
    ("cluster", ["hardware.ranksPerNode=2", "nodes=2", "parallelism.train.tensor=4"], "parallelism.train.tensor",
     "4 does not divide hardware.ranksPerNode 2, so a tensor group would cross nodes"),
    ("cluster", ["numa={pinning: container, gpuAllocation: devicePlugin}", "hardware.profile=h800",
                 "parallelism.train.tensor=8"], "numa.gpuAllocation",
     "each of 2 containers 4 GPUs of its own, and a tensor group of 8 would span them"),
    ("cluster", ["model.path=/elsewhere/m"], "model.path", "lies on no volume (mounted: /models, /data, /checkpoints)"),
    ("cluster", ["model.path=/modelsarchive/m"], "model.path", "lies on no volume"),
    ("cluster", ["data.train=train.jsonl"], "data.train", '"train.jsonl" is relative; on the cluster write an'),
    ("cluster", ["reward=[{python: '/r.py:f'}]"], "reward.0.python", '"/r.py" lies on no volume'),
    ("cluster", ["evaluation.data=/data/../val.jsonl"], "evaluation.data", "an empty part in it; write a plain absolute"),
    ("cluster", ["checkpoint.path=/models/c"], "checkpoint.path", "lies on the read-only volume at /models"),
    ("cluster", ["checkpoint.path="], "checkpoint.path", "is missing; on the cluster it must lie on a volume"),
]  # fmt: skip


def faults_of(*overrides: str, context: Context = "job", ranks: int | None = None) -> list[tuple[str, str]]:
    try:
        job_from(with_overrides(SMALLEST, overrides), context=context, ranks=ranks)
    except JobError as error:
        return [(fault.path, fault.message) for fault in error.faults]
    return []


@pytest.mark.parametrize(("override", "path", "fragment"), BAD_FIELDS)
def test_bad_field_is_one_fault(override: str, path: str, fragment: str) -> None:
    [(at, message)] = faults_of(override)
    assert at == f"spec.{path}"
    assert fragment in message


@pytest.mark.parametrize(("context", "overrides", "path", "fragment"), BROKEN_RULES)
def test_broken_rule_is_one_fault(context: str, overrides: list[str], path: str, fragment: str) -> None:
    if context == "cluster":
        faults = faults_of(*ON_CLUSTER, *overrides, context="cluster")
    else:
        faults = faults_of(*overrides, ranks=8 if context == "ranks" else None)
    [(at, message)] = faults
    assert at == f"spec.{path}"
    assert fragment in message


def test_smallest_job_has_no_fault_anywhere() -> None:
    assert faults_of() == faults_of(context="train") == faults_of(*ON_CLUSTER, context="cluster") == []


def test_all_faults_come_at_once() -> None:
    faults = faults_of(
        "training.steps=",
        "model.pth=/m",
        "algorithm.groupSize=1",
        "rollout.topK=5",
        "schedule.sharePrefix=false",
        "memory.budget=1Gi",
        "reward.0.weight=heavy",
        context="train",
    )
    assert sorted(path for path, _ in faults) == [
        "spec.algorithm.groupSize",
        "spec.memory.budget",
        "spec.model.pth",
        "spec.reward.0.weight",
        "spec.rollout.topK",
        "spec.schedule.sharePrefix",
        "spec.training.steps",
    ]


@pytest.mark.parametrize(
    "wrong", ["training.promptsPerStep=twelve", "training.promtsPerStep=12", "parallelism.train.tensor=two"]
)
def test_rule_is_silent_about_a_field_that_is_wrong_itself(wrong: str) -> None:
    # the default 128 is not divisible by 7, but nobody wrote 128 (or 1)
    assert len(faults_of(wrong, ranks=7)) == 1


def test_rules_do_not_depend_on_ranks_that_are_not_known() -> None:
    assert faults_of("training.promptsPerStep=7") == []
    assert len(faults_of(*ON_CLUSTER, "nodes=none", "training.promptsPerStep=7", context="cluster")) == 1


def test_devicePlugin_is_right_where_groups_fit_a_container() -> None:  # noqa: N802
    numa = "numa={pinning: container, gpuAllocation: devicePlugin}"
    assert faults_of(*ON_CLUSTER, numa, "parallelism.train.tensor=4", "hardware.numaNodes=2", context="cluster") == []
    # one NUMA node more than its profile says: containers of 2 GPUs
    [(path, _)] = faults_of(*ON_CLUSTER, numa, "parallelism.train.tensor=4", "hardware.numaNodes=4", context="cluster")
    assert path == "spec.numa.gpuAllocation"
    # more NUMA nodes than ranks: a container for each rank
    assert faults_of(*ON_CLUSTER, numa, "hardware={numaNodes: 4, ranksPerNode: 2}", context="cluster") == []


def test_pod_template_mounts_cover_paths_too() -> None:
    mounts = "[{name: m, mountPath: /models}, {name: d, mountPath: /data}, {name: c, mountPath: /c, readOnly: false}]"
    template = f"podTemplate={{spec: {{containers: [{{name: trainer, volumeMounts: {mounts}}}]}}}}"
    assert faults_of(template, "checkpoint.path=/c/run", context="cluster") == []
    other = template.replace("trainer", "sidecar")
    assert [path for path, _ in faults_of(other, "checkpoint.path=/c/run", context="cluster")] == [
        "spec.model.path",
        "spec.data.train",
        "spec.checkpoint.path",
    ]


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"kind": "Pod"}, ['kind: "Pod" is not RollplexJob']),
        ({"apiVersion": "rollplex.io/v1"}, ['apiVersion: "rollplex.io/v1" is not rollplex.io/v1alpha1']),
        ({"kind": None}, ["kind: null is not RollplexJob"]),
        ({"metadata": {"name": "Has Spaces"}}, ['metadata.name: "Has Spaces" is malformed; write up to 50 lower-case']),
        ({"metadata": {}}, ["metadata.name: is missing; for example name: clevrer"]),
        ({"spec": None}, ["spec: is missing"]),
        ({"spec": []}, ["spec: a list is not a mapping"]),
        ({"Spec": {}}, ["Spec: unknown key; did you mean spec?"]),
        ({"status": {}}, ["status: unknown key"]),
    ],
)
def test_bad_top_level_is_named(change: dict[str, Any], faults: list[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(SMALLEST | change))
    with pytest.raises(JobError) as caught:
        load_job(path)
    found = [str(fault) for fault in caught.value.faults]
    assert len(found) == len(faults)
    for fault, beginning in zip(found, faults, strict=True):
        assert fault.startswith(beginning)


def test_missing_kind_says_what_to_write() -> None:
    with pytest.raises(
        JobError, match=r"^apiVersion: is missing; write apiVersion: rollplex.io/v1alpha1\nkind: is missing"
    ):
        job_from({"spec": {}})
