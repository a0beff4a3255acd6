"""What the API server refuses of itself is what ``rollplex validate`` refuses, in words that help."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.api import JobError, RollplexJob, job_from
from rollplex.api.document import with_overrides, with_value
from rollplex.api.load import load_job
from tests.cluster.bad_job import ON_CLUSTER, OPERATOR, SMALLEST, Bad
from tests.cluster.bad_jobs import TABLE
from tests.cluster.client import Client, Kubectl, Object, RefusedError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import has_reason
from tests.cluster.programs import REPOSITORY
from tests.cluster.situation import Situation

RIGHT = with_overrides(SMALLEST, ON_CLUSTER)


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Client:
    """Requests as admin in the namespace default, where nothing is kept."""
    return plane.client()


def dry_run(server: Client, job: Object) -> Object:
    """The job as the server would store it; RefusedError where it would not."""
    return server.create("rollplexjobs", job, dryRun="All", fieldValidation="Strict")


def as_read(stored: Object) -> RollplexJob:
    """A stored job as the operator reads it."""
    metadata = {key: stored["metadata"][key] for key in ("name", "namespace")}
    return job_from({**stored, "metadata": metadata}, context="cluster")


@pytest.mark.parametrize("job", TABLE, ids=lambda job: job.id)
def test_bad_job_is_refused_by_the_server_or_by_the_operator(server: Client, job: Bad) -> None:
    document = job.document(cluster=True)
    with pytest.raises(JobError):
        job_from(document, context="cluster")
    if job.server == OPERATOR:
        dry_run(server, document)
        return
    with pytest.raises(RefusedError) as refused:
        dry_run(server, document)
    assert refused.value.code in (400, 422)
    assert job.words in refused.value.message
    if "json parse error" not in refused.value.message:
        # CEL cannot name the item of a list that a rule of the whole spec found
        assert job.place.partition("[")[0] in refused.value.message


@pytest.mark.parametrize("job", [job for job in TABLE if job.server == OPERATOR], ids=lambda job: job.id)
def test_what_the_server_cannot_see_the_operator_says(situation: Situation, job: Bad) -> None:
    document = job.document(cluster=True)
    document["spec"]["image"] = "rollplex/trainer:test"
    situation.client.create("rollplexjobs", document)
    situation.wait("small", has_reason("Admitted", "InvalidSpec"), timeout=2.0)
    condition = situation.condition("Admitted", "small")
    assert condition["status"] == "False"
    assert job.says in condition["message"]
    assert situation.pods("small") == []


def test_right_job_is_taken_and_read_as_it_was_written(server: Client) -> None:
    assert as_read(dry_run(server, RIGHT)).spec == job_from(RIGHT).spec


def test_whole_job_of_the_design_is_taken(server: Client) -> None:
    file = REPOSITORY / "tests" / "unit" / "api" / "data" / "clevrer-32b.yaml"
    document = yaml.safe_load(file.read_text().replace("1.0e-6", "0.000001"))
    document["metadata"]["namespace"] = "default"
    assert as_read(dry_run(server, document)).spec == load_job(file).spec


def test_null_is_the_default(server: Client) -> None:
    sections = ("algorithm", "rollout", "schedule", "memory", "evaluation", "runPolicy", "podTemplate", "envFrom")
    document = with_overrides(RIGHT, [f"{section}=" for section in sections] + ["nodes=", "training.optimizer="])
    assert dry_run(server, document)["spec"] == dry_run(server, RIGHT)["spec"]


# Values of the fields that rules read; most are right, so that a job with a few of them often is.
TENSOR = st.sampled_from([1, 1, 2, 3, 4, 8])
FILE = st.sampled_from(["/data/a", "/models/b/c", "/checkpoints/x/y", "/else/z", "rel/a", "/data/./a", "/data/"])
REWARD = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["exact", "numeric", "iou", "length", "format"]),
        "python": st.sampled_from(["/data/r.py:f", "/else/r.py:f", "r.py:f", "/data/../r.py:f"]),
        "options": st.fixed_dictionaries(
            {},
            optional={
                "relative": st.just(0.1),
                "kind": st.just("box"),
                "pattern": st.just("a+"),
                "maxTokens": st.sampled_from([4, 600]),
                "bufferTokens": st.sampled_from([2, 5, 80]),
            },
        ),
    },
)
VOLUME = st.fixed_dictionaries(
    {
        "claim": st.just("c"),
        "path": st.sampled_from(
            ["/models", "/data", "/checkpoints", "/checkpoints/x", "/checkpoints/small", "/dev/shm", "/data/", "/a..b"]
        ),
    },
    optional={"readOnly": st.booleans()},
)
MOUNT = st.fixed_dictionaries({"name": st.just("x"), "mountPath": st.sampled_from(["/else", "/checkpoints", "/data"])})
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "nodes": st.integers(1, 5),
    "hardware.ranksPerNode": st.sampled_from([1, 2, 3, 4, 6, 8, 16]),
    "hardware.numaNodes": st.integers(1, 4),
    "hardware.profile": st.sampled_from(["h800", "generic"]),
    "parallelism.train.tensor": TENSOR,
    "parallelism.rollout.tensor": TENSOR,
    "parallelism.rollout.ranks": st.sampled_from([2, 4, 8, 12, 24]),
    "parallelism.placement": st.sampled_from(["colocated", "disaggregated"]),
    "training.promptsPerStep": st.sampled_from([1, 6, 8, 12, 64, 120]),
    "numa": st.sampled_from([{"pinning": "container", "gpuAllocation": "devicePlugin"}, {"pinning": "container"}]),
    "scheduling.gang": st.sampled_from(["auto", "kueue", "native", "volcano", "none"]),
    "scheduling.queue": st.just("team-a"),
    "model.reference": st.one_of(st.just("initial"), FILE),
    "model.shape": st.sampled_from(["qwen2.5-vl-7b", "gpt-2"]),
    "model.freeze": st.lists(st.sampled_from(["vision", "projector", "language"]), max_size=3),
    "model.path": FILE,
    "data.train": FILE,
    "data.format": st.sampled_from(["rollplex", "verl"]),
    "data.columns": st.just({"prompt": "q"}),
    "algorithm.name": st.sampled_from(["grpo", "dr_grpo", "gspo", "dapo", "rloo", "opd"]),
    "algorithm.normalization": st.sampled_from(["token", "sequence", "sum", "constant"]),
    "algorithm.kl.coefficient": st.sampled_from([0, 0.0, 0.1]),
    "algorithm.clip.low": st.just(0.25),
    "algorithm.overlong.buffer": st.sampled_from([0, 4, 700]),
    "algorithm.groupSize": st.sampled_from([1, 2, 1024, 1025]),
    "rollout.maxTokens": st.sampled_from([3, 512]),
    "rollout.replay": FILE,
    "rollout.temperature": st.sampled_from([0, 0.01, 1, 10.5]),
    "evaluation": st.builds(lambda file: {"data": file}, FILE),
    "reward": st.lists(REWARD, min_size=1, max_size=2),
    "schedule.sharePrefix": st.booleans(),
    "schedule.mode": st.sampled_from(["serial", "stream"]),
    "schedule.runAhead": st.sampled_from(["auto", 1, 0, "1", 1.5]),
    "envFrom": st.lists(
        st.fixed_dictionaries(
            {}, optional={"secretRef": st.just({"name": "a"}), "configMapRef": st.just({"name": "b"})}
        ),
        max_size=2,
    ),
    "volumes": st.lists(VOLUME, max_size=4),
    "checkpoint.path": FILE,
    "memory.budget": st.sampled_from(["76Gi", "0Gi", "1.5G", "76GB", 76]),
    "podTemplate.metadata": st.sampled_from([{"labels": {"a": None, "b": "c"}}, {"labels": {"a": 1}}, {"name": "x"}]),
    "podTemplate": st.builds(
        lambda name, mounts: {"spec": {"containers": [{"name": name, "volumeMounts": mounts}]}},
        st.sampled_from(["trainer", "sidecar"]),
        st.lists(MOUNT, max_size=2),
    ),
}
CHANGE = st.sampled_from(sorted(VALUES)).flatmap(lambda path: st.tuples(st.just(path), VALUES[path]))


@settings(max_examples=400, deadline=None)
@given(changes=st.lists(CHANGE, min_size=1, max_size=5))
def test_server_and_validate_agree(server: Client, changes: list[tuple[str, Any]]) -> None:
    document: Object = RIGHT
    for path, value in changes:
        document = with_value(document, ["spec", *path.split(".")], value)
    try:
        job, faults = job_from(document, context="cluster"), ""
    except JobError as error:
        job, faults = None, str(error)
    try:
        stored, refused = dry_run(server, document), ""
    except RefusedError as error:
        stored, refused = None, str(error)
    assert (job is None) == (stored is None), f"validate: {faults or 'valid'}\nserver: {refused or 'valid'}"
    if job and stored:
        assert as_read(stored).spec == job.spec


@pytest.mark.parametrize("length", [1, 49, 50, 51, 63])
@pytest.mark.parametrize("nodes", [1, 1000])
def test_name_is_refused_where_a_child_would_not_fit(server: Client, length: int, nodes: int) -> None:
    document = with_overrides(RIGHT, [f"nodes={nodes}", f"training.promptsPerStep={8 * nodes}"])
    document["metadata"] = {"name": "a" * length}
    if length <= 50:
        dry_run(server, document)
        return
    with pytest.raises(RefusedError, match=f"has {length} characters.*write up to 50 lower-case letters"):
        dry_run(server, document)


@pytest.mark.parametrize("name", ["1st", "a.b"])
def test_name_that_is_no_host_name_is_refused(server: Client, name: str) -> None:
    with pytest.raises(RefusedError, match="beginning with a letter"):
        dry_run(server, RIGHT | {"metadata": {"name": name}})


def test_generated_name_is_checked_too(server: Client) -> None:
    assert dry_run(server, RIGHT | {"metadata": {"generateName": "sweep-"}})["metadata"]["name"].startswith("sweep-")
    with pytest.raises(RefusedError, match="has 52 characters"):
        dry_run(server, RIGHT | {"metadata": {"generateName": "a" * 47}})


@pytest.mark.parametrize(
    ("validate", "said"),
    [("true", 'unknown field "spec.training.stepz"'), ("warn", 'unknown field "spec.training.stepz"'), ("ignore", "")],
)
def test_unknown_key_with_kubectl(kubectl: Kubectl, validate: str, said: str) -> None:
    job = yaml.safe_dump(with_overrides(RIGHT, ["training.stepz=3"]))
    if validate == "true":
        with pytest.raises(RefusedError, match=said):
            kubectl("apply", "-f", "-", stdin=job)
        return
    kubectl("apply", f"--validate={validate}", "-f", "-", stdin=job)
    assert "stepz" not in kubectl("get", "rpj", "small", "-o", "jsonpath={.spec}")


def test_kubectl_lists_jobs_by_their_columns(kubectl: Kubectl, client: Client) -> None:
    client.create("rollplexjobs", RIGHT)
    status = {
        "phase": "Running",
        "step": 12,
        "nodes": "1/1",
        "restarts": 2,
        "overlap": {"hiddenPercent": 61.5, "savedPercent": -3.25},
    }
    client.patch("rollplexjobs", "small", {"status": status}, part="status")
    head, row = kubectl("get", "rpj").splitlines()
    assert head.split() == ["NAME", "PHASE", "STEP", "NODES", "RESTARTS", "SAVED%", "AGE"]
    assert row.split()[:6] == ["small", "Running", "12", "1/1", "2", "-3.25"]
    assert "rollplexjob.rollplex.io/small" in kubectl("get", "all", "-o", "name")
    assert kubectl("get", "rpj", "--field-selector", "status.phase=Failed", "-o", "name") == ""
    assert "small" in kubectl("get", "rpj", "--field-selector", "status.phase=Running", "-o", "name")
    assert "savedPercent" in kubectl("explain", "rpj.status.overlap")
